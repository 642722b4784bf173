//! Generics, closures, trait objects and inlines, each with a known share.

use std::hint::black_box;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}
unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}
const PROCESS: i32 = 2;
const THREAD: i32 = 3;

fn cpu_ns(clock: i32) -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(clock, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

#[inline(always)]
fn stirred(mut x: u64, n: u64) -> u64 {
    for _ in 0..n { x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1)) } // LINE stirred
    x
}

trait Work {
    fn work(&self, n: u64) -> u64;
}
struct Digger;
impl Work for Digger {
    #[inline(never)]
    fn work(&self, n: u64) -> u64 {
        stirred(n, n)
    }
}

struct Generic<T>(T);
impl<T: Copy + Into<u64>> Generic<T> {
    #[inline(never)]
    fn churn(&self, n: u64) -> u64 {
        let mut x: u64 = self.0.into();
        for _ in 0..n { x = black_box(x.wrapping_mul(2862933555777941757).wrapping_add(3)) } // LINE churn
        x
    }
}

#[inline(never)]
fn with_closure(n: u64) -> u64 {
    let closure = |m: u64| {
        let mut x = m;
        for _ in 0..m { x = black_box(x.wrapping_mul(3202034522624059733).wrapping_add(5)) } // LINE closure
        x
    };
    apply(closure, n) + 1
}
#[inline(never)]
fn apply<F: Fn(u64) -> u64>(function: F, n: u64) -> u64 {
    black_box(function(n)) + 1
}

fn measured(sum: &mut u64, work: impl FnOnce() -> u64) {
    let before = cpu_ns(THREAD);
    black_box(work());
    *sum += cpu_ns(THREAD) - before;
}

fn main() {
    let (mut dug, mut churned, mut closed) = (0, 0, 0);
    let digger: Box<dyn Work> = black_box(Box::new(Digger));
    let generic = Generic(7u32);
    let mut seed = 88172645463325252u64;
    let mut around = |mean: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        mean / 2 + seed % mean
    };
    while cpu_ns(THREAD) < 1_500_000_000 {
        let (a, b, c) = (around(100_000), around(60_000), around(40_000));
        measured(&mut dug, || digger.work(a));
        measured(&mut churned, || generic.churn(b));
        measured(&mut closed, || with_closure(c));
    }
    let all = cpu_ns(PROCESS);
    println!("{{\"cpu_ns\": {all}, \"work\": {dug}, \"churn\": {churned}, \"with_closure\": {closed}}}");
}
