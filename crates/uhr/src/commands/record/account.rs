//! `--as USER`: the account that a command runs under.

use std::ffi::CString;

use anyhow::Result;
use uhr_collect::child::User;

use crate::failure::{Exit, Failure};

/// Looks a user up by name or number.
///
/// # Errors
/// If there is none, or uhr may not become another user.
pub(super) fn user(name: &str) -> Result<User> {
    let refuse = |text: String| Failure::new(Exit::Status(super::OWN_FAILURE), "cannot-change-user", text);
    if !uhr_collect::host().root {
        return Err(refuse(format!("only root can run a command as {name}"))
            .hint("sudo uhr record --as ...")
            .into());
    }
    let line = passwd_line(name).ok_or_else(|| refuse(format!("there is no user {name}")))?;
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, ..] = fields[..] else {
        return Err(refuse(format!("the entry of user {name} cannot be read")).into());
    };
    let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else {
        return Err(refuse(format!("the entry of user {name} cannot be read")).into());
    };
    Ok(User { uid, gid, groups: groups(name, gid), name: name.to_owned(), home: home.to_owned() })
}

/// The entry of a user, from wherever this host keeps its users.
fn passwd_line(name: &str) -> Option<String> {
    let found = std::process::Command::new("getent").args(["passwd", name]).output().ok()?;
    let text = String::from_utf8(found.stdout).ok()?;
    text.lines().next().filter(|_| found.status.success()).map(str::to_owned)
}

fn groups(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else { return vec![gid] };
    let mut groups = vec![gid; 1024];
    let mut count = groups.len() as i32;
    // SAFETY: `groups` has room for `count` entries, which the call takes as its limit; `name` ends with a zero byte.
    let known = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    groups.truncate(if known < 0 { 1 } else { count.max(1) as usize });
    groups
}
