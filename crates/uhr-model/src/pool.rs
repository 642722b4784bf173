//! Waiting for work: the loops in which threads of a pool, and the helpers of a runtime, sit until there is something to
//! do. Such a loop also runs the work, so it counts only where nothing but functions that wait lies between it and the
//! end of the stack.

/// What a part of a stack is to a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolPart {
    /// A function of which nothing is known.
    #[default]
    Opaque,
    /// A function that waits for its caller: of the kernel, of the C library, of a runtime.
    Waits,
    /// The loop of a pool: what waits here waits for work.
    Loop,
    /// `uv_cond_wait` of libuv.
    UvWait,
    /// A function called `worker`, as many are: of libuv's pool if it waits in [`PoolPart::UvWait`].
    Worker,
}

impl PoolPart {
    /// What a function outside the kernel is. `in_libc` says that it is one of the C library's.
    pub fn of_function(name: &str, in_libc: bool) -> Self {
        match name {
            "uv_cond_wait" => return Self::UvWait,
            "worker" => return Self::Worker,
            _ if in_libc => return Self::Waits,
            _ => (),
        }
        let begins = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
        if begins(LOOPS) {
            Self::Loop
        } else if begins(WAITS) {
            Self::Waits
        } else {
            Self::Opaque
        }
    }

    /// The stack of a part and the part that called it.
    pub fn called_by(self, caller: Self) -> Self {
        match (self, caller) {
            (Self::Waits, caller) => caller,
            (Self::UvWait, Self::Worker) => Self::Loop,
            (Self::UvWait, Self::Waits) => Self::UvWait,
            (Self::UvWait, caller) => caller,
            (own, _) => own,
        }
    }
}

/// Loops of pools and of the helpers of runtimes, by the beginning of their name.
const LOOPS: &[&str] = &[
    // Go: threads without a goroutine, and the runtime's own.
    "runtime.stopm",
    "runtime.mPark",
    "runtime.stoplockedm",
    "runtime.gcstopm",
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.sysmon",
    "runtime.templateThread",
    "runtime.notetsleepg",
    "os/signal.signal_recv",
    // Rust: rayon, tokio.
    "rayon_core::registry::WorkerThread::wait_until",
    "tokio::runtime::park::",
    "tokio::runtime::scheduler::multi_thread::park::",
    "tokio::runtime::blocking::pool::Inner::run",
    // Node.js.
    "node::(anonymous namespace)::PlatformWorkerThread",
    "node::TaskQueue<v8::Task>::BlockingPop",
    "node::inspector::(anonymous namespace)::StartIoThreadMain",
    // The JVM: collectors, compilers, its other threads; Java's executors by the names of their compiled methods.
    "GangWorker::",
    "AbstractGangWorker::",
    "WorkerThread::run",
    "GCTaskThread::",
    "ConcurrentGCThread::run",
    "G1ConcurrentRefine",
    "G1ServiceThread::",
    "G1PrimaryConcurrentRefineThread::",
    "G1YoungRemSetSamplingThread::",
    "ConcurrentG1RefineThread::",
    "G1ConcurrentMarkThread::",
    "ConcurrentMarkThread::",
    "CompileQueue::get",
    "CompileBroker::compiler_thread_loop",
    "VMThread::loop",
    "VMThread::wait_for_operation",
    "VMThread::wait_for_vm_operations",
    "NMethodSweeper::sweeper_loop",
    "VMThread::run",
    "WatcherThread::",
    "ServiceThread::service_thread_entry",
    "MonitorDeflationThread::monitor_deflation_thread_entry",
    "NotificationThread::notification_thread_entry",
    "signal_thread_entry",
    "JVM_WaitForReferencePendingList",
    "java.util.concurrent.ThreadPoolExecutor::getTask",
    "java.util.concurrent.ThreadPoolExecutor.getTask",
    "java.util.concurrent.ForkJoinPool::awaitWork",
    "java.util.concurrent.ForkJoinPool.awaitWork",
    "java.util.concurrent.ForkJoinPool::runWorker",
    "java.util.concurrent.ForkJoinPool.runWorker",
    // Servers and libraries in C and C++.
    "bioProcessBackgroundJobs",
    "background_work_sleep_once",
    "background_thread0_work",
    "ngx_thread_pool_cycle",
    "g_thread_pool_wait_for_new_task",
    "gomp_thread_start",
    "__kmp_launch_thread",
    "__kmp_fork_barrier",
    "blas_thread_server",
    "tbb::detail::r1::rml::private_worker::run",
    "scheduler_wait",
];

/// Functions that wait for their caller, by the beginning of their name. Those of the C library stand here for programs
/// that are linked statically.
const WAITS: &[&str] = &[
    "pthread_cond_",
    "__pthread_cond_",
    "___pthread_cond_",
    "pthread_mutex_lock",
    "___pthread_mutex_lock",
    "__futex_abstimed_wait",
    "__lll_lock_wait",
    "futex_wait",
    "sem_wait",
    "__new_sem_wait",
    "sem_timedwait",
    "do_futex_wait",
    "syscall",
    "__syscall",
    "__timedwait",
    "clock_nanosleep",
    "nanosleep",
    "epoll_",
    "std::condition_variable::",
    "std::_V2::condition_variable_any::",
    "std::sys::",
    "std::sync::",
    "std::thread::park",
    "core::",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    "<parking_lot",
    "rayon_core::sleep::",
    "mio::",
    "runtime.futex",
    "runtime.notesleep",
    "runtime.notetsleep",
    "runtime.usleep",
    "runtime.netpoll",
    "runtime.semasleep",
    "g_cond_wait",
    "g_async_queue_",
    "gomp_barrier_",
    "gomp_simple_barrier_",
    "gomp_sem_",
    "gomp_dock_",
    "do_wait",
    "do_spin",
    "__kmp_",
    "node::ConditionVariableBase<",
    "uv_sem_",
    "uv__sem_",
    "Monitor::wait",
    "MonitorLocker::wait",
    "PlatformMonitor::",
    "os::PlatformMonitor::",
    "PlatformEvent::",
    "os::PlatformEvent::",
    "PosixSemaphore::",
    "Semaphore::wait",
    "Parker::park",
    "Unsafe_Park",
    "SemaphoreGangTaskDispatcher::",
    "WorkerTaskDispatcher::",
    "os::signal_wait",
    "check_pending_signals",
    "jdk.internal.misc.Unsafe",
    "java.util.concurrent.locks.",
    "java.util.concurrent.LinkedBlockingQueue",
    "java.util.concurrent.SynchronousQueue",
    "java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue",
    "ethr_event_",
    "tbb::detail::r1::rml::",
    "tbb::detail::r1::binary_semaphore::",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack from the leaf outwards; functions of the C library are marked.
    fn of(stack: &[&str]) -> PoolPart {
        let parts = stack.iter().map(|name| match name.strip_prefix("libc:") {
            Some(name) => PoolPart::of_function(name, true),
            None => PoolPart::of_function(name, false),
        });
        parts.reduce(PoolPart::called_by).unwrap_or_default()
    }

    #[test]
    fn a_pool_waits_for_work_only_in_its_own_loop() {
        let idle = ["libc:pthread_cond_wait", "bioProcessBackgroundJobs", "libc:start_thread"];
        assert_eq!(of(&idle), PoolPart::Loop);
        let works = ["libc:pthread_cond_wait", "flush", "bioProcessBackgroundJobs", "libc:start_thread"];
        assert_eq!(of(&works), PoolPart::Opaque);
        let go = [
            "runtime.futex.abi0",
            "runtime.futexsleep",
            "runtime.notesleep",
            "runtime.mPark",
            "runtime.stopm",
        ];
        assert_eq!(of(&go), PoolPart::Loop);
        assert_eq!(
            of(&["runtime.futex", "runtime.futexsleep", "runtime.lock2", "main.main"]),
            PoolPart::Opaque
        );
    }

    #[test]
    fn a_worker_is_one_of_libuv_only_if_libuv_waits() {
        assert_eq!(of(&["libc:pthread_cond_wait", "uv_cond_wait", "worker"]), PoolPart::Loop);
        assert_ne!(of(&["libc:pthread_cond_wait", "worker", "libc:start_thread"]), PoolPart::Loop);
        assert_ne!(of(&["uv_cond_wait", "main"]), PoolPart::Loop);
    }
}
