//! Recordings that are none, or that were cut off: refused in words, never with a panic.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::harness::{Place, Who, ask};

const QUESTIONS: &[&str] = &[
    "overview",
    "query --group-by function",
    "query --metric off-cpu --group-by thread",
    "query --metric page-faults --group-by region",
    "query --metric resident --group-by process",
    "call-paths --function main",
];

#[test]
fn what_is_no_recording_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::create_dir(place.path("foreign")).unwrap();
    fs::write(place.path("foreign/manifest.json"), "{\"name\": \"some web page\"}").unwrap();
    fs::create_dir(place.path("garbage")).unwrap();
    fs::write(place.path("garbage/manifest.json"), [0xff, 0x00, b'{']).unwrap();
    fs::write(place.path("file"), "not a folder").unwrap();
    for name in ["empty", "foreign", "garbage", "file", "missing"] {
        for question in QUESTIONS {
            let (code, answer) = ask(&place.path(name), question);
            assert_eq!(code, 1, "{name}: {question}: {answer}");
            assert_eq!(answer["error"]["code"], "no-recording", "{name}: {question}: {answer}");
        }
    }
}

#[test]
fn a_recording_of_a_newer_uhr_is_refused() {
    let place = Place::new();
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&"true"]).or_skip() else { return };
    let manifest = recorded.rec.join("manifest.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    value["format_version"] = 9999.into();
    fs::write(&manifest, value.to_string()).unwrap();
    let (code, answer) = ask(&recorded.rec, "overview");
    assert_eq!((code, answer["error"]["code"].as_str()), (1, Some("recording-too-new")), "{answer}");
}

fn files_of(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = names.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Cuts each file in half, in turn, and breaks its middle.
#[test]
fn a_truncated_or_damaged_recording_is_answered_or_refused() {
    let place = Place::new();
    let program = place.c("shares.c", &[]);
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program, &"0.2"]).or_skip() else { return };
    for file in files_of(&recorded.rec) {
        let path = recorded.rec.join(&file);
        let whole = fs::read(&path).unwrap();
        for broken in [&whole[..whole.len() / 2], &[], &scrambled(&whole)] {
            fs::write(&path, broken).unwrap();
            for question in QUESTIONS {
                let (code, answer) = ask(&recorded.rec, question);
                let says = answer["ok"] == true || answer["error"]["message"].is_string();
                assert!([0, 1].contains(&code) && says, "{file}: {question}: {code}: {answer}");
            }
        }
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        fs::write(&path, &whole).unwrap();
    }
    recorded.ask("overview");
}

fn scrambled(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (from, to) = (bytes.len() / 3, bytes.len() / 3 + bytes.len() / 10);
    bytes[from..to].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(167).wrapping_add(13));
    bytes
}
