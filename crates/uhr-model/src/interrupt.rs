use crate::codes::codes;

codes! {
    /// What kind of interrupt ended a wait, where no thread did.
    Interrupt {
        /// Another one, or not known.
        Other = 0 "other",
        /// A timer: a sleep or a timeout was over.
        Timer = 1 "timer",
        /// The network: a packet arrived, or there was room to send one.
        Network = 2 "network",
        /// A disk had done what it was asked for.
        Block = 3 "block",
    }
}

impl Interrupt {
    /// Whether a kernel function is where an interrupt begins: what called it was interrupted, and is not its cause.
    pub fn begins_at(name: &str) -> bool {
        begins(name, ENTRIES)
    }

    /// Whether a kernel function is where the work begins that interrupts leave for later. It is done when an interrupt
    /// is over, and also by a thread whose system call had it waiting, as for packets to another process of the machine.
    pub fn is_continued_at(name: &str) -> bool {
        begins(name, CONTINUATIONS)
    }

    /// Whether a kernel function is where a thread takes its own work up again, though an interrupt brought it there.
    pub fn is_left_at(name: &str) -> bool {
        begins(name, EXITS)
    }

    /// The kind that a kernel function on the interrupt's stack stands for, if it stands for one.
    /// Walk from the leaf outwards and take the first answer.
    pub fn of_kernel_function(name: &str) -> Option<Self> {
        KERNEL_FUNCTIONS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|row| row.1)
    }
}

fn begins(name: &str, names: &[&str]) -> bool {
    names.iter().any(|begin| name.starts_with(begin))
}

/// The kernel's ways into interrupts, by the beginning of their name.
const ENTRIES: &[&str] = &["asm_sysvec_", "asm_common_interrupt"];
/// Into what they leave for later.
const CONTINUATIONS: &[&str] = &["handle_softirqs", "__do_softirq"];
/// And back to the thread.
const EXITS: &[&str] = &["irqentry_exit", "exit_to_user_mode", "preempt_schedule_irq", "raw_irqentry_exit"];

/// Kernel functions that run in interrupts and wake threads, by the beginning of their name.
const KERNEL_FUNCTIONS: &[(&str, Interrupt)] = &[
    ("hrtimer_", Interrupt::Timer),
    ("__hrtimer_", Interrupt::Timer),
    ("process_timeout", Interrupt::Timer),
    ("call_timer_fn", Interrupt::Timer),
    ("__run_timer", Interrupt::Timer),
    ("run_timer_", Interrupt::Timer),
    ("timerfd_tmrproc", Interrupt::Timer),
    ("timerfd_alarmproc", Interrupt::Timer),
    ("it_real_fn", Interrupt::Timer),
    ("posix_timer_fn", Interrupt::Timer),
    ("run_posix_cpu_timers", Interrupt::Timer),
    ("tick_", Interrupt::Timer),
    ("update_process_times", Interrupt::Timer),
    ("sched_tick", Interrupt::Timer),
    ("tcp_", Interrupt::Network),
    ("udp_", Interrupt::Network),
    ("sock_", Interrupt::Network),
    ("sk_", Interrupt::Network),
    ("ip_", Interrupt::Network),
    ("ip6_", Interrupt::Network),
    ("ipv6_", Interrupt::Network),
    ("netif_", Interrupt::Network),
    ("__netif_", Interrupt::Network),
    ("napi_", Interrupt::Network),
    ("__napi_", Interrupt::Network),
    ("net_rx_action", Interrupt::Network),
    ("net_tx_action", Interrupt::Network),
    ("process_backlog", Interrupt::Network),
    ("skb_", Interrupt::Network),
    ("blk_", Interrupt::Block),
    ("__blk_", Interrupt::Block),
    ("bio_endio", Interrupt::Block),
    ("end_bio_", Interrupt::Block),
    ("blkdev_bio_end_io", Interrupt::Block),
    ("iomap_dio_bio_end_io", Interrupt::Block),
    ("folio_end_", Interrupt::Block),
    ("mpage_", Interrupt::Block),
    ("nvme_", Interrupt::Block),
    ("virtblk_", Interrupt::Block),
    ("scsi_", Interrupt::Block),
    ("ahci_", Interrupt::Block),
    ("ata_", Interrupt::Block),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: &[&str]) -> Option<Interrupt> {
        stack.iter().find_map(|name| Interrupt::of_kernel_function(name))
    }

    #[test]
    fn the_innermost_function_that_says_something_counts() {
        let sleep = ["try_to_wake_up", "hrtimer_wakeup", "__hrtimer_run_queues", "hrtimer_interrupt"];
        assert_eq!(of(&sleep), Some(Interrupt::Timer));
        let packet =
            ["try_to_wake_up", "__wake_up_common", "sock_def_readable", "tcp_data_queue", "net_rx_action"];
        assert_eq!(of(&packet), Some(Interrupt::Network));
        let disk = ["wake_up_bit", "folio_end_read", "bio_endio", "blk_mq_end_request", "virtblk_done"];
        assert_eq!(of(&disk), Some(Interrupt::Block));
        assert_eq!(of(&["try_to_wake_up", "ttwu_do_activate", "sysvec_call_function_single"]), None);
    }
}
