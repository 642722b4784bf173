use uhr_ebpf::*;
fn main() {
    if pid_none() { for f in features() { println!("{:?}", f); } }
    let pid: Vec<u32> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let mut o = Options::new(if pid.is_empty() { Scope::Machine } else { Scope::Processes(pid) });
    o.frame_pointers = std::env::var("FP").is_ok();
    let mut s = Sampler::start(&o).unwrap();
    let t = std::time::Instant::now();
    let mut n = std::collections::BTreeMap::new();
    let mut shown = std::collections::BTreeMap::new();
    let mut k = 0;
    while t.elapsed().as_secs() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        s.look(10_000_000, 0.001).unwrap();
        k += 1;
        if k % 100 == 0 { s.tell_times().unwrap(); }
        s.drain(&mut |b| {
            let e = Event::parse(b).unwrap();
            let key = match &e { Event::Sample(s) => format!("{:?}", s.kind).chars().take(4).collect::<String>(), Event::Woken(_) => "woken".into(), Event::WaitEnd(_) => "end".into(), Event::Times(t) => format!("times{:?}", t.occasion) };
            *n.entry(key.clone()).or_insert(0) += 1;
            let c = shown.entry(key).or_insert(0);
            *c += 1;
            if *c <= 3 { let t = format!("{:?}", e); println!("{}", t.chars().take(600).collect::<String>()); }
        });
    }
    println!("{n:?}\n{:?}", s.counters());
    println!("{:?}", s.costs());
}

fn pid_none() -> bool { std::env::args().len() < 2 }
