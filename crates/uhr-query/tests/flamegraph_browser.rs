//! The flame graph in a real browser: zoom, search, keyboard, flipping, themes, and no script from names.
//! The steps are in `flamegraph_browser.mjs`. Needs `chromium`, `node`, and playwright-core in the `node_modules` folder
//! that `UHR_PLAYWRIGHT` names; says loudly that it skips without them. `UHR_SCREENSHOTS` names a folder for pictures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use uhr_model::FrameMode::{self, Interpreter, Jit, Kernel, User};
use uhr_query::flamegraph::{FlameGraph, FlameTree, write};

const CHROMIUM: &str = "/usr/bin/chromium";

/// A stack of the example, root first: name, module and kind of each frame; then its weight in ms.
type Stack = (&'static [(&'static str, &'static str, FrameMode)], u64);

const PY: &str = "report.py";
const LIBPY: &str = "libpython3.13.so.1.0";
const LIBC: &str = "libc.so.6";
const VM: &str = "vmlinux";

const STACKS: &[Stack] = &[
    (
        &[
            ("_start", "python3.13", User),
            ("Py_RunMain", LIBPY, User),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("<module>", PY, Interpreter),
            ("load_orders", PY, Interpreter),
            ("json.loads", "json/__init__.py", Interpreter),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("scan_once_unicode", "_json.so", User),
            ("PyDict_SetItem", LIBPY, User),
        ],
        2_310,
    ),
    (
        &[
            ("_start", "python3.13", User),
            ("Py_RunMain", LIBPY, User),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("<module>", PY, Interpreter),
            ("load_orders", PY, Interpreter),
            ("read", LIBC, User),
            ("entry_SYSCALL_64_after_hwframe", VM, Kernel),
            ("do_syscall_64", VM, Kernel),
            ("vfs_read", VM, Kernel),
            ("filemap_read", VM, Kernel),
            ("copy_page_to_iter", VM, Kernel),
        ],
        1_120,
    ),
    (
        &[
            ("_start", "python3.13", User),
            ("Py_RunMain", LIBPY, User),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("<module>", PY, Interpreter),
            ("summarise", PY, Interpreter),
            ("group_by_customer", PY, Interpreter),
            ("<lambda>", PY, Interpreter),
        ],
        1_450,
    ),
    (
        &[
            ("_start", "python3.13", User),
            ("Py_RunMain", LIBPY, User),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("<module>", PY, Interpreter),
            ("summarise", PY, Interpreter),
            ("matrix_product", "[jit]", Jit),
            ("inner_loop", "[jit]", Jit),
        ],
        1_905,
    ),
    (
        &[
            ("_start", "python3.13", User),
            ("Py_RunMain", LIBPY, User),
            ("_PyEval_EvalFrameDefault", LIBPY, User),
            ("<module>", PY, Interpreter),
            ("summarise", PY, Interpreter),
            ("std::vector<Order, std::allocator<Order> >::_M_realloc_insert<Order const&>", "fast.so", User),
            ("malloc", LIBC, User),
            ("asm_exc_page_fault", VM, Kernel),
            ("handle_mm_fault", VM, Kernel),
        ],
        760,
    ),
    (
        &[
            ("_start", "python3.13", User),
            ("Py_FinalizeEx", LIBPY, User),
            ("gc_collect_main", LIBPY, User),
            ("PyDict_SetItem", LIBPY, User),
            ("PyDict_SetItem", LIBPY, User),
        ],
        455,
    ),
    (&[("<script>window.pwned=1</script>", "\"><script>window.pwned=1</script>", User)], 200),
    (&[("]]></style><script>window.pwned=1</script>", "' onload='window.pwned=1", Jit)], 150),
    (&[("a.narrow\nframe", "app", User)], 3),
];

fn example() -> FlameTree {
    let mut tree = FlameTree::new("all");
    for (stack, ms) in STACKS {
        let mut node = tree.root();
        for (name, module, mode) in *stack {
            let function = tree.function(name, Some(module), Some(*mode));
            node = tree.child(node, function);
        }
        tree.add(node, ms * 1_000_000, *ms);
    }
    let short = tree.function("[too short to sample]", None, None);
    let short = tree.child(tree.root(), short);
    tree.add(short, 120_000_000, 0);
    tree
}

fn deep() -> FlameTree {
    let mut tree = FlameTree::new("all");
    let mut node = tree.root();
    for depth in 0..1_000u64 {
        let function = tree.function(&format!("descend_{depth}"), Some("app"), Some(User));
        node = tree.child(node, function);
        tree.add(node, 1_000_000, 1);
    }
    tree
}

fn draw(path: &Path, tree: &FlameTree, icicle: bool) {
    let notes = [
        "9,902 of 9,990 expected samples; 88 lost, none throttled.".to_string(),
        "99.5 % of stacks are complete; 0.4 % end for want of unwind information. 99 % of frames have names."
            .to_string(),
    ];
    let graph = FlameGraph {
        title: "CPU time of python3 report.py",
        subtitle: "python3 report.py --orders 2026-11.json · perf sampler, 999 Hz, frame pointers · 10.0 s from 2026-11-30 09:51:50 UTC",
        unit: "ns",
        tree,
        notes: &notes,
        icicle: Some(icicle),
        min_share: FlameGraph::MIN_SHARE,
    };
    write(&graph, &mut std::fs::File::create(path).unwrap()).unwrap();
}

fn playwright() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("UHR_PLAYWRIGHT")?);
    (folder.join("playwright-core/package.json").exists() && Path::new(CHROMIUM).exists()).then_some(folder)
}

#[test]
fn a_reader_can_zoom_search_flip_and_walk() {
    let Some(modules) = playwright() else {
        eprintln!(
            "SKIPPED: no browser test of the flame graph: needs chromium and UHR_PLAYWRIGHT=node_modules"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    draw(&folder.path().join("flame.svg"), &example(), false);
    draw(&folder.path().join("deep.svg"), &deep(), true);
    let status = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flamegraph_browser.mjs"))
        .arg(folder.path())
        .env("UHR_PLAYWRIGHT", modules)
        .env("UHR_CHROMIUM", CHROMIUM)
        .status()
        .expect("this test needs node");
    assert!(status.success(), "the browser saw something else, see above");
}
