//! Names as programmers wrote them.

use std::fmt;
use std::panic::catch_unwind;

/// Longer mangled names are left as they are, and so are names that would unfold to more: a short hostile name can
/// stand for gigabytes.
const MAX_NAME: usize = 64 * 1024;

/// The name as it was written in the source: Rust without the hash, C++ with parameters. Names that are not mangled,
/// or are damaged or huge, come back as they are.
pub fn demangle(name: &str) -> String {
    let demangled = if name.len() > MAX_NAME {
        None
    } else if is_rust(name) {
        rust(name)
    } else if name.starts_with("_Z") || name.starts_with("___Z") {
        cpp(name)
    } else {
        None
    };
    demangled.unwrap_or_else(|| name.to_owned())
}

/// Legacy Rust names are valid C++ names too; only the hash at their end tells them apart. `rustc_demangle` alone
/// would also take names without an underscore, such as a C function `ZN1aE`.
pub(crate) fn is_rust(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix("_R") {
        return rest.starts_with(|first: char| first.is_ascii_uppercase());
    }
    // Names of impls have dots inside (`core..fmt`); what compilers add behind the hash begins with one.
    let Some((_, rest)) = name.rsplit_once("17h").filter(|_| name.starts_with("_ZN")) else { return false };
    let (hash, end) = rest.split_at_checked(16).unwrap_or_default();
    let ends_here = end.strip_prefix('E').is_some_and(|added| added.is_empty() || added.starts_with('.'));
    ends_here && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    fmt::write(&mut out, format_args!("{demangled:#}")).ok()?;
    Some(out.0)
}

fn cpp(name: &str) -> Option<String> {
    // The parser is not ours and reads strangers' bytes: if it panics, the name stays mangled.
    catch_unwind(|| {
        let symbol = cpp_demangle::Symbol::new(name.as_bytes()).ok()?;
        let mut out = Bounded(String::new());
        symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()).ok()?;
        Some(out.0)
    })
    .ok()?
}

/// Text that refuses to grow past [`MAX_NAME`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language() {
        for (mangled, name) in [
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN3std2io5Write9write_all17h0123456789abcdefE", "std::io::Write::write_all"),
            ("_ZN3std2io5Write9write_all17h0123456789abcdefE.llvm.1234", "std::io::Write::write_all"),
            (
                "_ZN47_$LT$shares..Digger$u20$as$u20$shares..Work$GT$4work17ha56e94e2fab62b64E",
                "<shares::Digger as shares::Work>::work",
            ),
            ("_ZN3foo3barEiPKc", "foo::bar(int, char const*)"),
            ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo()"),
            ("_ZN3FooC2Ei", "Foo::Foo(int)"),
            ("_ZN3FooC4Ei", "Foo::Foo(int)"),
        ] {
            assert_eq!(demangle(mangled), name);
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "main",
            "",
            "_",
            "_Z",
            "_Zip",
            "_R",
            "_R2",
            "_Rest_of",
            "ZN1aE",
            "RNvC1a1b",
            "_ZN",
            "foo.cold",
            "ä_Z3foov",
        ] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn huge_and_exploding_names_stay() {
        let long = format!("_Z{}{}v", 70_000, "a".repeat(70_000));
        assert_eq!(demangle(&long), long);
        let fits = format!("_Z{}{}v", 60_000, "a".repeat(60_000));
        assert_eq!(demangle(&fits), format!("{}()", "a".repeat(60_000)));
        // Each S_ doubles the one before.
        let mut explode = String::from("_Z1fSt4pairIiiE");
        for at in 0..60 {
            let previous =
                if at == 0 { "S_".to_owned() } else { format!("S{}_", char::from(b'0' + (at % 10) as u8)) };
            explode.push_str(&format!("St4pairI{previous}{previous}E"));
        }
        assert!(demangle(&explode).len() <= MAX_NAME);
        let deep = format!("_Z1f{}i", "P".repeat(60_000));
        assert_eq!(demangle(&deep), deep);
        let deep = format!("_RNv{}C1a1b", "Nv".repeat(20_000));
        assert!(demangle(&deep).len() <= MAX_NAME);
    }
}
