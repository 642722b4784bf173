//! What runtimes write into the names of their code: function, file and line in one string.

use uhr_model::FrameMode;

use crate::{Location, demangle};

/// Longer names are not a runtime's.
pub(crate) const MAX_NAME: usize = 64 * 1024;

/// What the name of a piece of generated code says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuntimeName {
    pub(crate) location: Location,
    /// Interpreter, where the code is only the entry to a function that an interpreter runs.
    pub(crate) mode: Option<FrameMode>,
}

/// Takes a name apart. Names of unknown form are kept whole.
pub(crate) fn parse(name: &str) -> RuntimeName {
    if let Some(rest) = name.strip_prefix("py::") {
        return python(rest);
    }
    // V8's kinds of code that stand for a function of the program, and for one of V8's own.
    for kind in ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:", "Callback:", "Builtin:"] {
        if let Some(rest) = name.strip_prefix(kind) {
            return javascript(rest);
        }
    }
    plain(demangle(name))
}

/// CPython's trampolines (`-X perf`): `py::QUALNAME:FILE`. A file name can hold a colon, a qualified name cannot.
fn python(rest: &str) -> RuntimeName {
    let (function, file) =
        rest.split_once(':').map_or((rest, None), |(function, file)| (function, Some(file)));
    let location = Location {
        function: Some(function.to_owned()),
        file: file.filter(|file| !file.is_empty()).map(str::to_owned),
        line: None,
    };
    RuntimeName { location, mode: Some(FrameMode::Interpreter) }
}

/// V8: `*name /path/file.js:10:5`. The first character is the tier: `*` TurboFan, `+` Maglev, `^` Sparkplug, `~` the
/// interpreter. Functions without a name have an empty one.
fn javascript(rest: &str) -> RuntimeName {
    let interpreted = rest.starts_with('~');
    let rest = rest.strip_prefix(['*', '+', '^', '~']).unwrap_or(rest);
    let (function, place) = split_place(rest);
    let function = if function.is_empty() { "(anonymous)" } else { function };
    let (file, line) = place.map_or((None, None), split_line);
    let location = Location { function: Some(function.to_owned()), file, line };
    RuntimeName { location, mode: interpreted.then_some(FrameMode::Interpreter) }
}

/// Names (`get size`, computed ones) and paths can both hold blanks: the place begins where a path or URL does.
fn split_place(text: &str) -> (&str, Option<&str>) {
    let starts = [" /", " file://", " node:", " http://", " https://"];
    let at = starts.iter().filter_map(|start| text.find(start)).min().or_else(|| text.rfind(' '));
    match at {
        Some(at) => (&text[..at], Some(text[at..].trim()).filter(|place| !place.is_empty())),
        None => (text, None),
    }
}

/// `file:LINE:COLUMN` or `file:LINE`.
fn split_line(place: &str) -> (Option<String>, Option<u32>) {
    let number = |text: &str| text.parse::<u32>().ok();
    let found = place.rsplit_once(':').and_then(|(before, last)| {
        let last = number(last)?;
        let with_column = before.rsplit_once(':').and_then(|(file, line)| Some((file, number(line)?)));
        Some(with_column.unwrap_or((before, last)))
    });
    let (file, line) = found.map_or((place, None), |(file, line)| (file, Some(line)));
    (Some(file.to_owned()).filter(|file| !file.is_empty()), line.filter(|&line| line > 0))
}

fn plain(function: String) -> RuntimeName {
    RuntimeName { location: Location { function: Some(function), file: None, line: None }, mode: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_runtimes_write_them() {
        let interpreter = Some(FrameMode::Interpreter);
        for (name, function, file, line, mode) in [
            ("py::fib:/tmp/a.py", "fib", Some("/tmp/a.py"), None, interpreter),
            ("py::A.m:/tmp/a:b.py", "A.m", Some("/tmp/a:b.py"), None, interpreter),
            ("py::<module>:<string>", "<module>", Some("<string>"), None, interpreter),
            ("JS:*fib /tmp/a.js:1:13", "fib", Some("/tmp/a.js"), Some(1), None),
            (
                "JS:^ node:internal/validators:161:40",
                "(anonymous)",
                Some("node:internal/validators"),
                Some(161),
                None,
            ),
            ("JS:~get size /a dir/b.js:7:3", "get size", Some("/a dir/b.js"), Some(7), interpreter),
            ("Eval:~ /tmp/a.js:1:1", "(anonymous)", Some("/tmp/a.js"), Some(1), interpreter),
            ("LazyCompile:*name file.js:3", "name", Some("file.js"), Some(3), None),
            ("LazyCompile:+f file:///x.mjs:3:9", "f", Some("file:///x.mjs"), Some(3), None),
            ("Builtin:ArrayPrototypeSort", "ArrayPrototypeSort", None, None, None),
            ("BytecodeHandler:LdaZero", "BytecodeHandler:LdaZero", None, None, None),
            ("JS:*native  native array.js:1", "native  native", Some("array.js"), Some(1), None),
            ("JS:*", "(anonymous)", None, None, None),
            ("Interpreter", "Interpreter", None, None, None),
            ("Ljava/lang/Object;::foo(I)V", "Ljava/lang/Object;::foo(I)V", None, None, None),
            ("_RNvC1a1b", "a::b", None, None, None),
        ] {
            let parsed = parse(name);
            let expected =
                Location { function: Some(function.to_owned()), file: file.map(str::to_owned), line };
            assert_eq!(parsed, RuntimeName { location: expected, mode }, "{name}");
        }
    }
}
