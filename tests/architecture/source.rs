//! Just enough Rust to find every path that a file names: comments and literals are skipped, groups of a `use` are taken
//! apart, and `crate`, `self` and `super` are resolved, also inside inline modules.

/// A path as it was meant: `crate` first for our own, otherwise the crate's or the item's name.
pub(crate) type Path = Vec<String>;

/// A path where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: Path,
    /// In a module named `tests`.
    pub(crate) in_tests: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Colons,
    Other(char),
}

/// The module that a file below `src/` is.
pub(crate) fn module_of(file: &str) -> Path {
    let stem = file.trim_start_matches("src/").trim_end_matches(".rs");
    let parts = stem.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    std::iter::once("crate").chain(parts).map(str::to_owned).collect()
}

/// Every path of at least two parts in the source of `file`.
pub(crate) fn paths(file: &str, source: &str) -> Vec<Found> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    // The module we are in, and at which depth of braces each inline one began.
    let (mut module, mut inline, mut depth) = (module_of(file), Vec::new(), 0_usize);
    let mut at = 0;
    while at < tokens.len() {
        match tokens.get(at..).unwrap_or_default() {
            [Token::Word(keyword), Token::Word(name), Token::Other('{'), ..] if keyword == "mod" => {
                module.push(name.clone());
                depth += 1;
                inline.push(depth);
                at += 3;
            }
            [Token::Other('{'), ..] => {
                depth += 1;
                at += 1;
            }
            [Token::Other('}'), ..] => {
                if inline.last() == Some(&depth) {
                    inline.pop();
                    module.pop();
                }
                depth = depth.saturating_sub(1);
                at += 1;
            }
            [Token::Word(_), Token::Colons, ..] => at = tree(&tokens, at, &[], &module, &mut found),
            _ => at += 1,
        }
    }
    found
}

/// Reads one path, or a whole tree of a `use`, beginning at `at`; where it ends.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], module: &[String], found: &mut Vec<Found>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(Token::Word(word)) => {
                path.push(word.clone());
                at += 1;
            }
            Some(Token::Other('{')) => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| **token != Token::Other('}')) {
                    at = if *token == Token::Other(',') { at + 1 } else { tree(tokens, at, &path, module, found) };
                }
                return at + 1;
            }
            // A glob, or the end of what was meant as generic arguments.
            Some(_) => {
                found.push(Found::new(&path, module));
                return at + 1;
            }
            None => return at,
        }
        if tokens.get(at) != Some(&Token::Colons) {
            found.push(Found::new(&path, module));
            // `as name`
            let is_renamed = matches!(tokens.get(at), Some(Token::Word(word)) if word == "as");
            return if is_renamed { at + 2 } else { at };
        }
        at += 1;
    }
}

impl Found {
    fn new(path: &[String], module: &[String]) -> Self {
        Self { path: resolve(path, module), in_tests: module.iter().any(|part| part == "tests") }
    }
}

fn resolve(path: &[String], module: &[String]) -> Path {
    let mut resolved: Path = Vec::new();
    for (index, part) in path.iter().enumerate() {
        match part.as_str() {
            "self" if index == 0 => resolved = module.to_vec(),
            "self" => {}
            "super" => {
                if index == 0 {
                    resolved = module.to_vec();
                }
                resolved.pop();
            }
            part => resolved.push(part.to_owned()),
        }
    }
    resolved
}

fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            '/' if next == Some('/') => at = find(&chars, at, |rest| rest.starts_with(&['\n'])),
            '/' if next == Some('*') => at = end_of_comment(&chars, at),
            '"' => at = end_of_string(&chars, at),
            '\'' => at = end_of_quote(&chars, at),
            ':' if next == Some(':') => {
                tokens.push(Token::Colons);
                at += 2;
            }
            c if is_word(c) => {
                let end = find(&chars, at, |rest| !rest.first().is_some_and(|c| is_word(*c)));
                let word: String = chars.get(at..end).unwrap_or_default().iter().collect();
                let hashes = chars.iter().skip(end).take_while(|c| **c == '#').count();
                let is_raw = matches!(word.as_str(), "r" | "br" | "cr") && chars.get(end + hashes) == Some(&'"');
                if is_raw {
                    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    at = find(&chars, end + hashes + 1, |rest| rest.starts_with(&close)) + close.len();
                } else {
                    tokens.push(Token::Word(word));
                    at = end;
                }
            }
            c if c.is_whitespace() => at += 1,
            c => {
                tokens.push(Token::Other(c));
                at += 1;
            }
        }
    }
    tokens
}

/// The first place from `from` on where `matches` is true of the rest; otherwise the end.
fn find(chars: &[char], from: usize, matches: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|at| matches(chars.get(*at..).unwrap_or_default())).unwrap_or(chars.len())
}

fn end_of_comment(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0_usize, from);
    while at < chars.len() {
        match chars.get(at..at + 2) {
            Some(['/', '*']) => (depth, at) = (depth + 1, at + 2),
            Some(['*', '/']) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// A character in quotes is skipped; of a lifetime only the quote is.
fn end_of_quote(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => find(chars, from + 3, |rest| rest.starts_with(&['\''])) + 1,
        (_, Some('\'')) => from + 3,
        _ => from + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        paths("src/api/submit.rs", source).iter().map(|found| found.path.join("::")).collect()
    }

    #[test]
    fn a_use_is_taken_apart_and_resolved() {
        for (source, expected) in [
            ("use crate::job::Record;", vec!["crate::job::Record"]),
            ("use super::error::ApiError;", vec!["crate::api::error::ApiError"]),
            ("use super::super::raw;", vec!["crate::raw"]),
            ("use self::x::Y;", vec!["crate::api::submit::x::Y"]),
            ("use crate::{job::{self, Record as R}, api};", vec!["crate::job", "crate::job::Record", "crate::api"]),
            ("use crate::policy::*;", vec!["crate::policy"]),
            ("use std::{time::Duration, fmt};", vec!["std::time::Duration", "std::fmt"]),
            ("fn f(now: std::time::Instant) -> crate::X { now }", vec!["std::time::Instant", "crate::X"]),
            ("let x = Vec::<crate::job::Record>::new();", vec!["Vec", "crate::job::Record"]),
            ("pub(crate) fn f() {} pub(in crate::api) fn g() {}", vec!["crate::api"]),
            ("mod inner { use super::x::Y; } use super::z::Z;", vec!["crate::api::submit::x::Y", "crate::api::z::Z"]),
            ("mod a { fn f() { if x { y() } } use super::b::C; }", vec!["crate::api::submit::b::C"]),
        ] {
            assert_eq!(found(source), expected, "{source}");
        }
    }

    #[test]
    fn what_is_no_code_is_not_read() {
        for source in [
            "// crate::a::B",
            "/* crate::a /* ::B crate::c::D */ crate::e::F */",
            "//! [`crate::a::B`]",
            r#"let x = "crate::a::B \" crate::c::D";"#,
            r##"let x = r#"crate::a::B" crate::c::D"#;"##,
            "let x = b\"crate::a::B\";",
            r"let x = ('\'', '\\', '\u{1f600}', ':', 'x');",
        ] {
            assert_eq!(found(source), [""; 0], "{source}");
        }
        assert_eq!(
            found("fn f<'a>(x: &'a crate::a::B) {}"),
            ["crate::a::B"],
            "a lifetime is not the start of a literal"
        );
        assert_eq!(found("let x = ':'; let y = crate::a::B;"), ["crate::a::B"]);
    }

    #[test]
    fn a_path_in_tests_is_known_as_such() {
        let in_tests =
            |file| paths(file, "use a::b; mod tests { use c::d; } use e::f;").into_iter().map(|found| found.in_tests);
        assert_eq!(Vec::from_iter(in_tests("src/a.rs")), [false, true, false]);
        assert_eq!(Vec::from_iter(in_tests("src/a/tests.rs")), [true, true, true]);
    }

    #[test]
    fn a_file_is_its_module() {
        for (file, module) in [
            ("src/lib.rs", "crate"),
            ("src/call.rs", "crate::call"),
            ("src/policy/mod.rs", "crate::policy"),
            ("src/claude/request/shape.rs", "crate::claude::request::shape"),
        ] {
            assert_eq!(module_of(file).join("::"), module);
        }
    }
}
