//! `rewrite`: what rewriting rules make of a text, in the words of OpenLDAP's program of this name.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use larix_proto::ResultCode;
use larix_rewrite::{Rewrite, Rewritten};

use super::flags;

/// Show what rewriting rules make of a text
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
pub(super) struct RewriteArgs {
    /// The file with the rules (rewriteEngine, rewriteContext, rewriteRule ...), without prefixes; other lines are passed over.
    /// Without it they come from standard input
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// The context; several, separated by commas, take the text one after another
    #[arg(short = 'r', value_name = "CONTEXT", default_value = "default")]
    contexts: String,
    /// The text that the rules rewrite
    #[arg(value_name = "TEXT", required = true, allow_hyphen_values = true)]
    text: String,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: RewriteArgs = flags::parse(name, arguments);
    let shown = read(args.file.as_deref()).and_then(|rules| show(&rules, &args.contexts, &args.text));
    match shown {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(file: Option<&Path>) -> Result<String, String> {
    let Some(file) = file else {
        let mut text = String::new();
        return match io::stdin().read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) => Err(format!("standard input: {error}")),
        };
    };
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A line for each context.
fn show(rules: &str, contexts: &str, text: &str) -> Result<Vec<String>, String> {
    let mut rewrite = Rewrite::default();
    for (number, line) in rules.lines().enumerate() {
        let at = |why: String| format!("line {}: {why}", number + 1);
        let words = words(line).map_err(|why| at(why.to_owned()))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.first().is_some_and(|first| first.to_ascii_lowercase().starts_with("rewrite")) {
            rewrite.command(&words).map_err(|error| at(format!("{error}: {}", error.help())))?;
        }
    }
    let (mut lines, mut current) = (Vec::new(), text.to_owned());
    for name in contexts.split(',') {
        let (context, _) = rewrite.context(name).ok_or_else(|| format!("there is no context `{name}`"))?;
        // There is no directory to search.
        let (result, code, word) = match rewrite.rewrite(context, &current, &|_, _| None, None) {
            Rewritten::Kept => (Some(current.clone()), 0, "ok"),
            Rewritten::Changed(changed) => (Some(changed), 0, "ok"),
            Rewritten::Failed => (None, -1, "error"),
            Rewritten::Refused(ResultCode::UNWILLING_TO_PERFORM) => (None, -3, "unwilling to perform"),
            Rewritten::Refused(code) => (None, i64::from(code.0), "user-defined"),
        };
        lines.push(format!("{current} -> {} [{code}:{word}]", result.as_deref().unwrap_or("(null)")));
        match result {
            Some(next) => current = next,
            None => break,
        }
    }
    Ok(lines)
}

/// The words of a line; quotation marks hold one together, and `\` stays where it stands.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    if rest.starts_with('#') {
        return Ok(words);
    }
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let inside = rest.get(usize::from(quote.is_some())..).unwrap_or_default();
        let mut escaped = false;
        let end = inside.find(|c: char| {
            let escapes = !escaped && c == '\\';
            let was_escaped = std::mem::replace(&mut escaped, escapes);
            !was_escaped && quote.map_or_else(|| c.is_whitespace(), |quote| c == quote)
        });
        let (word, tail) = match (end, quote) {
            (Some(end), _) => inside.split_at(end),
            (None, None) => (inside, ""),
            (None, Some(_)) => return Err("a quotation mark is missing"),
        };
        words.push(word.to_owned());
        rest = tail.get(usize::from(quote.is_some())..).unwrap_or_default().trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r##"# rules
rewriteEngine on
database none
rewriteMap escape forFilter unescapedn escape2filter
rewriteContext first
rewriteRule "^uid=([^,]+),(.*)$" "(&(uid=${forFilter($1)})(ou=$2))" ":"
rewriteContext second
rewriteRule '^\(&' "found" ":"
rewriteRule "^no$" "no" "#"
rewriteRule "^busy$" "no" "U{51}"
"##;

    #[test]
    fn texts_go_through_contexts() {
        for (contexts, text, expected) in [
            ("first", r"uid=a\2c*,ou=x", &[r"uid=a\2c*,ou=x -> (&(uid=a,\2A)(ou=ou=x)) [0:ok]"][..]),
            ("first", r"uid=a\,ou=x", &[r"uid=a\,ou=x -> (null) [-1:error]"]),
            (
                "first,second",
                "uid=a,o=x",
                &["uid=a,o=x -> (&(uid=a)(ou=o=x)) [0:ok]", "(&(uid=a)(ou=o=x)) -> found [0:ok]"],
            ),
            ("second", "other", &["other -> other [0:ok]"]),
            ("second,first", "no", &["no -> (null) [-3:unwilling to perform]"]),
            ("second", "busy", &["busy -> (null) [51:user-defined]"]),
        ] {
            assert_eq!(show(RULES, contexts, text).unwrap(), expected, "{contexts} {text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (rules, contexts, expected) in [
            (RULES, "third", "no context `third`"),
            ("\nrewriteRule (", "default", "line 2: needs a pattern"),
            ("rewriteRule \"x", "default", "line 1: a quotation mark"),
            ("rewriteMap escape m sideways", "default", "`sideways`"),
        ] {
            let error = show(rules, contexts, "x").unwrap_err();
            assert!(error.contains(expected), "{rules}: {error}");
        }
    }
}
