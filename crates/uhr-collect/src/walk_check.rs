//! Walks of the kernel, held against those of the unwinder in user space over a copy of the same stack. Only where it is
//! asked for: it costs what the kernel's walk saves.

use uhr_model::{Avma, CodeAddress, StackEnding};

/// Differences that are told one by one.
const MAX_TOLD: usize = 20;

/// How walks compared.
#[derive(Debug, Default)]
pub(crate) struct WalkCheck {
    pub(crate) same: u64,
    /// The copy was too short; what it held was the same.
    pub(crate) longer: u64,
    pub(crate) different: u64,
    pub(crate) told: Vec<String>,
}

impl WalkCheck {
    /// Compares a walk of the kernel with one of user space, each with its ending.
    pub(crate) fn compare(
        &mut self,
        (kernel, kernel_ending): (&[CodeAddress<Avma>], StackEnding),
        (user, user_ending): (&[CodeAddress<Avma>], StackEnding),
    ) {
        let is_longer = user_ending == StackEnding::CopyTooShort && kernel.starts_with(user);
        let is_same = kernel == user && kernel_ending == user_ending;
        *match (is_same, is_longer) {
            (true, _) => &mut self.same,
            (_, true) => &mut self.longer,
            _ => &mut self.different,
        } += 1;
        if !is_same && !is_longer && self.told.len() < MAX_TOLD {
            let common = kernel.iter().zip(user).take_while(|(one, other)| one == other).count();
            let rest = |frames: &[CodeAddress<Avma>], ending: StackEnding| {
                let rest: Vec<String> =
                    frames[common..].iter().take(6).map(|frame| frame.lookup().to_string()).collect();
                format!("{} frames, {}, there [{}]", frames.len(), ending.name(), rest.join(" "))
            };
            let last = common.checked_sub(1).map_or(Avma(0), |at| kernel[at].lookup());
            let (kernel, user) = (rest(kernel, kernel_ending), rest(user, user_ending));
            self.told.push(format!(
                "walks differ behind frame {common} ({last}): kernel {kernel}; user space {user}"
            ));
        }
    }
}
