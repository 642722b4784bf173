//! One server: how it is asked, and when it is not asked any more.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use uhr_model::BuildId;
use ureq::Agent;

use crate::Limits;

/// Servers may send one to another address of theirs; more hops are a loop.
const MAX_REDIRECTS: u32 = 3;

/// A server, until it fails.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    agent: Agent,
    has_failed: AtomicBool,
}

/// What a server says.
pub(crate) enum Reply {
    /// The file; its bytes are still to be read, and may be anything.
    Body(Box<dyn Read>),
    /// It has no such file.
    Absent,
    /// It failed before, and was not asked.
    Silent,
    /// It failed now: a sentence.
    Failed(String),
}

impl Server {
    pub(crate) fn new(url: &str, limits: &Limits) -> Self {
        let config = Agent::config_builder()
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(Some(limits.answer))
            .timeout_global(Some(limits.whole))
            .max_redirects(MAX_REDIRECTS)
            .http_status_as_error(false)
            .user_agent(concat!("uhr/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            url: url.trim_end_matches('/').to_owned(),
            agent: config.into(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Asks for the debug file of a build.
    pub(crate) fn ask(&self, id: &BuildId) -> Reply {
        if self.has_failed.load(Ordering::Relaxed) {
            return Reply::Silent;
        }
        match self.agent.get(format!("{}/buildid/{id}/debuginfo", self.url)).call() {
            Ok(response) => match response.status().as_u16() {
                200 => Reply::Body(Box::new(response.into_body().into_reader())),
                404 => Reply::Absent,
                status => Reply::Failed(self.give_up(&format!("it answered with status {status}"))),
            },
            Err(error) => Reply::Failed(self.give_up(&error.to_string())),
        }
    }

    /// Does not ask it again. Gives the sentence that says so.
    pub(crate) fn give_up(&self, why: &str) -> String {
        self.has_failed.store(true, Ordering::Relaxed);
        format!("{}: {why}; not asked again", self.url)
    }
}
