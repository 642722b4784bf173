//! Planted shares lie in the printed intervals, and answers are the same bytes on any number of threads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use support::{Loaded, Planted};
use uhr_query::answers::{QueryAnswer, Rows};
use uhr_query::{Filters, GroupBy, Question, overview, query};

/// Deterministic random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Functions and their shares of what the program does, in the long run.
const SHARES: [(&str, f64); 5] =
    [("parse", 0.4), ("hash", 0.3), ("copy", 0.2), ("log", 0.07), ("rare", 0.03)];

/// A program that does one thing for a while (20 ms on average), then another.
fn phased(seed: u64, samples: u64) -> Loaded {
    let mut planted = Planted::new(samples);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let mut random = Random(seed);
    let mut now = SHARES[0].0;
    for at in 0..samples {
        if at == 0 || random.uniform() < 0.05 {
            let mut rest = random.uniform();
            now = SHARES
                .iter()
                .find(|(_, share)| {
                    rest -= share;
                    rest < 0.0
                })
                .map_or("rare", |one| one.0);
        }
        planted.sample(at, main, &["main", now]);
    }
    planted.finish()
}

fn by_function(rec: &Loaded) -> QueryAnswer {
    query(&rec.profile, &Question::default(), &GroupBy::parse("function").unwrap()).unwrap()
}

#[test]
fn planted_shares_lie_in_the_printed_intervals() {
    let (mut covered, mut given) = (0, 0);
    for seed in 0..12 {
        let rec = phased(seed, 8_000);
        let Rows::Counted(rows) = by_function(&rec).rows else { panic!("cpu is counted") };
        for (name, share) in SHARES {
            let row = rows.iter().find(|row| row.key.0[0].1.to_string() == name).unwrap();
            assert!(row.self_share_ci95[0] <= row.self_share && row.self_share <= row.self_share_ci95[1]);
            if row.interval_note.is_none() {
                given += 1;
                covered += u32::from((row.self_share_ci95[0]..=row.self_share_ci95[1]).contains(&share));
                assert!(row.self_share_ci95[1] - row.self_share_ci95[0] < 0.2, "an interval says something");
            }
        }
        let main = rows.iter().find(|row| row.key.0[0].1.to_string() == "main").unwrap();
        assert_eq!((main.self_share_ci95, main.total_share_ci95), ([0.0, 0.0], [1.0, 1.0]));
    }
    assert!(given >= 50, "{given} of 60 have an interval");
    assert!(f64::from(covered) / f64::from(given) >= 0.88, "{covered} of {given} cover");
}

#[test]
fn the_same_question_gives_the_same_bytes_on_any_number_of_threads() {
    let mut planted = Planted::new(60_000);
    let app = planted.process("app", 100);
    let threads: Vec<u32> = (0..5).map(|at| planted.thread(app, &format!("t{at}"), 100 + at)).collect();
    let names: Vec<String> = (0..300).map(|at| format!("f{at}")).collect();
    let mut random = Random(7);
    let mut pick = |below: usize| (random.uniform() * below as f64) as usize;
    for at in 0..60_000 {
        let (a, b, c) = (pick(20), pick(300), pick(300));
        planted.sample(at, threads[pick(5)], &[&names[a], &names[b], &names[c]]);
    }
    let rec = planted.finish();
    let answer = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let recording = uhr_recording::Recording::open(&rec.path).unwrap();
            let profile = uhr_query::Profile::load(&recording, None).unwrap();
            let texts = ["function", "thread,function", "time", "mode"].map(|group| {
                let answer = query(&profile, &Question::default(), &GroupBy::parse(group).unwrap()).unwrap();
                serde_json::to_string(&answer).unwrap()
            });
            let overview = overview(&profile, &Filters::default(), false).unwrap();
            (texts, serde_json::to_string(&overview).unwrap())
        })
    };
    let one = answer(1);
    assert_eq!(one, answer(4));
    assert_eq!(one, answer(7));
    assert!(one.0.iter().all(|text| text.len() < 4096), "default answers are small");
}
