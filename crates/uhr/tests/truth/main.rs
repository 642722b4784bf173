//! Ground truth for the whole command: programs that burn, sleep, wait and touch memory in known amounts, and measure
//! themselves while they do. What `uhr` answers about them is held against what they say, never against its own words.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "what this host cannot do is skipped loudly")]

mod agreement;
mod annotate;
mod calls;
mod capabilities;
mod cgroups;
mod crews;
mod crowds;
mod damaged;
mod early;
mod endings;
mod families;
mod faults;
mod harness;
mod held_up;
mod hostile_names;
mod interrupts;
mod intervals;
mod jit;
mod kernel_programs;
mod killed;
mod languages;
mod late_names;
mod major_faults;
mod many_stacks;
mod mapping_names;
mod namespaces;
mod native;
mod overhead;
mod replaced;
mod shares;
mod short_lives;
mod statuses;
mod syscalls;
mod thread_time;
mod unprivileged;
mod wait_lengths;
mod waits;
mod wakers;
mod walks;
