//! The flame graph as a document: well formed whatever the names are, complete, and honest about what it leaves out.
//! An XML parser that is not ours (Python's expat) reads it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

use std::io::Write;
use std::process::{Command, Stdio};

use uhr_model::FrameMode;
use uhr_query::flamegraph::{Drawn, FlameGraph, FlameTree, write};

/// Reads an SVG and prints one line a frame: depth, start, value, x, width, class, tooltip, label (as JSON). Fails if
/// the document is not well formed, or if it holds an element or attribute that the writer has no business with.
const READER: &str = r#"
import json, sys, xml.etree.ElementTree as E
NS = "{http://www.w3.org/2000/svg}"
root = E.fromstring(sys.stdin.buffer.read())
known = {NS + tag for tag in "svg title style rect g text script".split()}
for element in root.iter():
    assert element.tag in known, element.tag
    assert not any(name.startswith("on") or "href" in name for name in element.keys()), element.attrib
assert len(root.findall(".//" + NS + "script")) == 1
assert len(root.findall(".//" + NS + "style")) == 1
for frame in root.iter(NS + "g"):
    if frame.get("role") != "treeitem":
        continue
    title, rect, *text = frame
    print(json.dumps([int(frame.get("aria-level")), int(frame.get("data-start")), int(frame.get("data-value")),
        float(rect.get("x")), float(rect.get("width")), rect.get("class"), title.text,
        text[0].text if text else None]))
for text in root.iter(NS + "text"):
    if text.get("class"):
        print(json.dumps([text.get("class"), text.text]))
"#;

#[derive(Debug)]
struct Frame {
    level: u64,
    start: u64,
    value: u64,
    x: f64,
    width: f64,
    class: String,
    tooltip: String,
    label: Option<String>,
}

/// Frames and the heading's lines of a document, as the parser saw them.
fn read(svg: &[u8]) -> (Vec<Frame>, Vec<String>) {
    let mut python = Command::new("python3")
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    let mut stdin = python.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(svg).unwrap());
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "the document is not what it should be, see above");
        let mut frames = Vec::new();
        let mut lines = Vec::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            if row[0].is_string() {
                lines.push(row[1].as_str().unwrap_or_default().to_string());
                continue;
            }
            frames.push(Frame {
                level: row[0].as_u64().unwrap(),
                start: row[1].as_u64().unwrap(),
                value: row[2].as_u64().unwrap(),
                x: row[3].as_f64().unwrap(),
                width: row[4].as_f64().unwrap(),
                class: row[5].as_str().unwrap().to_string(),
                tooltip: row[6].as_str().unwrap().to_string(),
                label: row[7].as_str().map(str::to_string),
            });
        }
        (frames, lines)
    })
}

fn graph<'a>(tree: &'a FlameTree, notes: &'a [String]) -> FlameGraph<'a> {
    FlameGraph {
        title: "CPU time of app",
        subtitle: "app --fast · perf sampler · 10.0 s",
        unit: "ns",
        tree,
        notes,
        icicle: None,
        min_share: FlameGraph::MIN_SHARE,
    }
}

fn draw(graph: &FlameGraph<'_>) -> (Vec<u8>, Drawn) {
    let mut svg = Vec::new();
    let drawn = write(graph, &mut svg).unwrap();
    (svg, drawn)
}

fn add(tree: &mut FlameTree, stack: &[&str], value: u64) {
    let mut node = tree.root();
    for name in stack {
        let function = tree.function(name, Some("app"), Some(FrameMode::User));
        node = tree.child(node, function);
    }
    tree.add(node, value, value / 1_000_000);
}

#[test]
fn hostile_names_are_text_and_nothing_else() {
    let long = format!("std::{}>", "map<a&b, ".repeat(7_000));
    let hostile = [
        "<script>alert(1)</script>",
        "]]><script>window.pwned=1</script>",
        "\"onload=\"alert(1)",
        "' onclick='alert(1)",
        "&lt;&#0;&amp;<!--",
        "line\nbreak\r\ttab",
        "nul\0escape\u{1b}[31m",
        "\u{202e}reversed\u{feff}\u{fffe}\u{ffff}\u{10ffff}",
        "lossy \u{fffd}\u{fffd} bytes",
        "</title></g></svg>",
        "",
        "写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写写",
        &long,
    ];
    let mut tree = FlameTree::new(hostile[0]);
    for name in hostile {
        let function = tree.function(name, Some(name), Some(FrameMode::Jit));
        let node = tree.child(tree.root(), function);
        tree.add(node, 1_000_000, 1);
    }
    let notes: Vec<String> = hostile.iter().map(ToString::to_string).collect();
    let mut graph = graph(&tree, &notes);
    (graph.title, graph.subtitle, graph.unit) = (hostile[1], &long, "<b>\"");
    let (svg, drawn) = draw(&graph);
    let (frames, lines) = read(&svg);
    assert_eq!(frames.len(), drawn.frames);
    assert_eq!(frames.len(), hostile.len() + 1);
    let tooltip_of =
        |name: &str| frames.iter().any(|frame| frame.level == 2 && frame.tooltip.starts_with(name));
    assert!(tooltip_of(
        "<script>alert(1)</script>\n<script>alert(1)</script> · JIT\n1,000,000 <b>\", 7.7 %, 1 sample"
    ));
    assert!(tooltip_of("nul\\u{0}escape\\u{1b}[31m\n"));
    assert!(tooltip_of("line\\nbreak\\r\\ttab\n"));
    assert!(tooltip_of("\\u{202e}reversed\\u{feff}\\u{fffe}\\u{ffff}\\u{10ffff}\n"));
    assert!(frames.iter().all(|frame| frame.tooltip.len() < 3_000 && frame.tooltip.split('\n').count() <= 3));
    assert!(lines.iter().any(|line| line == "<script>alert(1)</script>"));
}

#[test]
fn widths_add_up() {
    let mut tree = FlameTree::new("all");
    for (at, value) in [3_000_000, 7_000_000, 11_000_000, 1_300_000, 17_700_000].into_iter().enumerate() {
        add(&mut tree, &["main", &format!("f{at}"), "leaf"], value);
    }
    let (svg, _) = draw(&graph(&tree, &[]));
    let (frames, lines) = read(&svg);
    let row = |level| frames.iter().filter(move |frame| frame.level == level);
    assert_eq!(row(3).map(|frame| frame.value).sum::<u64>(), 40_000_000);
    assert!((row(3).map(|frame| frame.width).sum::<f64>() - row(1).next().unwrap().width).abs() < 0.001);
    for (left, right) in row(3).zip(row(3).skip(1)) {
        assert!((left.x + left.width - right.x).abs() < 0.001);
        assert_eq!(left.start + left.value, right.start);
    }
    assert_eq!(frames[0].tooltip, "all\n40.0 ms, 100 %, 39 samples");
    assert_eq!(frames[2].tooltip, "f0\napp · native\n3.00 ms, 7.5 %, 3 samples");
    assert_eq!(frames[2].label.as_deref(), Some("f0"));
    assert!(lines.contains(&"All 12 frames are drawn.".to_string()));
}

#[test]
fn what_is_too_narrow_is_counted_in_the_page() {
    let mut tree = FlameTree::new("all");
    add(&mut tree, &["main", "big"], 999_000_000);
    add(&mut tree, &["main", "small", "smaller"], 400_000);
    add(&mut tree, &["tiny"], 600_000);
    let notes = ["Lost 12 of 9,990 samples.".to_string()];
    let (svg, drawn) = draw(&graph(&tree, &notes));
    let (frames, lines) = read(&svg);
    assert_eq!((drawn.frames, drawn.hidden), (3, 3));
    assert!((drawn.hidden_share - 0.001).abs() < 1e-9);
    assert_eq!(frames.len(), 3);
    let expected = [
        "CPU time of app",
        "app --fast · perf sampler · 10.0 s",
        "Lost 12 of 9,990 samples.",
        "3 frames narrower than 0.1 % of the total are not drawn and not searched; 0.10 % of the total lies in them.",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_empty_recording_says_so() {
    let tree = FlameTree::new("all");
    let (frames, lines) = read(&draw(&graph(&tree, &[])).0);
    assert_eq!(frames.len(), 1);
    assert!(lines.contains(&"Nothing was recorded.".to_string()));
}

#[test]
fn the_same_stacks_in_any_order_give_the_same_bytes() {
    let stacks = [(["main", "a"], 5), (["main", "b"], 7), (["start", "a"], 9), (["main", "a"], 2)];
    let (mut one, mut two) = (FlameTree::new("all"), FlameTree::new("all"));
    stacks.iter().for_each(|(stack, value)| add(&mut one, stack, *value));
    stacks.iter().rev().for_each(|(stack, value)| add(&mut two, stack, *value));
    assert_eq!(draw(&graph(&one, &[])).0, draw(&graph(&two, &[])).0);
}

#[test]
fn a_function_has_one_colour_wherever_it_stands() {
    let mut tree = FlameTree::new("all");
    add(&mut tree, &["main", "memcpy"], 5);
    add(&mut tree, &["other", "deep", "memcpy"], 7);
    let (frames, _) = read(&draw(&graph(&tree, &[])).0);
    let classes: Vec<&str> = frames
        .iter()
        .filter(|frame| frame.tooltip.starts_with("memcpy"))
        .map(|frame| frame.class.as_str())
        .collect();
    assert_eq!(classes.len(), 2);
    assert_eq!(classes[0], classes[1]);
}

#[test]
fn deep_stacks_and_wide_trees_are_drawn() {
    let mut tree = FlameTree::new("all");
    let names: Vec<String> = (0..100_000).map(|depth| format!("recurse_{depth}")).collect();
    let stack: Vec<&str> = names.iter().map(String::as_str).collect();
    add(&mut tree, &stack, 1_000_000_000);
    for at in 0..100_000 {
        add(&mut tree, &["main", &format!("f{at}")], 10_000);
    }
    let mut graph = graph(&tree, &[]);
    graph.min_share = 0.0;
    let (_, drawn) = draw(&graph);
    assert_eq!(drawn, Drawn { frames: 200_002, hidden: 0, hidden_share: 0.0 });
}

#[test]
fn script_and_style_cannot_end_their_section() {
    for text in
        [include_str!("../src/flamegraph/flamegraph.js"), include_str!("../src/flamegraph/flamegraph.css")]
    {
        assert!(!text.contains("]]>"));
        assert!(!text.contains("innerHTML") && !text.contains("eval(") && !text.contains("@import"));
    }
}

#[test]
fn a_picture_higher_than_a_window_has_its_callers_above() {
    let names: Vec<String> = (0..60).map(|at| format!("f{at}")).collect();
    let mut deep = FlameTree::new("all");
    add(&mut deep, &names.iter().map(String::as_str).collect::<Vec<_>>(), 1_000_000_000);
    let mut flat = FlameTree::new("all");
    add(&mut flat, &["main"], 1_000_000_000);
    for (tree, icicle, drawn) in
        [(&deep, None, true), (&flat, None, false), (&deep, Some(false), false), (&flat, Some(true), true)]
    {
        let (svg, _) = draw(&FlameGraph { icicle, ..graph(tree, &[]) });
        let mark = format!("data-icicle=\"{drawn}\"");
        assert!(String::from_utf8(svg).unwrap().contains(&mark), "{icicle:?}: {mark}");
    }
}
