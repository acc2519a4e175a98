//! Every command line of README and the documentation, parsed by the definitions that the commands themselves are parsed by: a
//! flag that is renamed or goes is found where it is still recommended. What the commands do is typed by the tests of `larix-tests`.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::tools::{self, Tool};
use crate::{Larix, serve};

/// Fewer command lines than there have been for long: then they are not found any more.
const LINES_MIN: usize = 120;

/// The same of examples in the help of commands.
const EXAMPLES_MIN: usize = 45;

/// Where the help is wrapped.
const HELP_COLUMNS_MAX: usize = 100;

/// Where a command ends and another, or a file, begins.
const OPERATORS: [&str; 10] = ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"];

/// Words that may stand before a command.
const BEFORE: [&str; 5] = ["sudo", "exec", "time", "nohup", "$"];

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("SECURITY.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The lines of code of a document, each with its number; a line that ends in a backslash has the next one in it.
fn code(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let line_of_code = line.trim_start();
        if line_of_code.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced && !line.starts_with("    ") {
            goes_on = false;
            continue;
        }
        let (own, more) = line_of_code.strip_suffix('\\').map_or((line_of_code, false), |own| (own, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, before)) => *before += own,
            None => lines.push((number + 1, own.to_owned())),
        }
        goes_on = more;
    }
    lines
}

/// The commands of a line, as words.
fn commands(line: &str) -> Vec<Vec<String>> {
    // Not a line of a shell: an LDIF value, a sentence.
    let Some(words) = shlex::split(line) else { return Vec::new() };
    let mut commands = vec![Vec::new()];
    for word in words {
        if OPERATORS.contains(&word.as_str()) || word.starts_with("<<") {
            commands.push(Vec::new());
        } else {
            commands.last_mut().unwrap().push(word);
        }
    }
    for command in &mut commands {
        let is_before = |word: &String| {
            BEFORE.contains(&word.as_str()) || word.split_once('=').is_some_and(|(name, _)| is_variable(name))
        };
        let first = command.iter().position(|word| !is_before(word)).unwrap_or(command.len());
        command.drain(..first);
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// What is wrong with a command; `None` where it is not one of ours.
fn fault(words: &[String]) -> Option<Result<(), clap::Error>> {
    let (program, arguments) = words.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    // Left out by the writer: what stands there is a part of the command.
    // So is the output of another command.
    if arguments
        .iter()
        .any(|word| word == "..." || word == "…" || word.starts_with('[') || word.contains("$("))
    {
        return None;
    }
    let tool = |tool: Tool, arguments: &[String]| {
        let words = std::iter::once(name.to_owned()).chain(arguments.iter().cloned());
        tools::command(tool).try_get_matches_from(words)
    };
    let parsed = if name == "slapd" && arguments.first().is_some_and(|first| first.starts_with('-')) {
        serve::slapd_command().try_get_matches_from(words)
    } else if let Some(found) = Tool::by_program_name(name) {
        tool(found, arguments)
    } else if name == "larix" {
        match arguments.first().and_then(|first| Tool::by_subcommand(first)) {
            Some(found) => tool(found, arguments.get(1..)?),
            // The name alone is a name.
            None if arguments.is_empty() => return None,
            None => Larix::command().try_get_matches_from(words),
        }
    } else {
        return None;
    };
    Some(match parsed {
        Err(error) if error.exit_code() != 0 => Err(error),
        _ => Ok(()),
    })
}

#[test]
fn every_documented_command_line_is_understood() {
    let mut understood = 0;
    let mut faults = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (number, line) in code(&text) {
            for command in commands(&line) {
                match fault(&command) {
                    None => {}
                    Some(Ok(())) => understood += 1,
                    Some(Err(error)) => {
                        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
                        faults.push(format!("{}:{number}: {line}\n  {first}", document.display()));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {understood}:\n{}", faults.len(), faults.join("\n"));
    assert!(understood >= LINES_MIN, "{understood} command lines were found");
}

/// The texts below the flags in the help of a command, and of the commands below it.
fn below_flags(command: &clap::Command, found: &mut Vec<String>) {
    found.extend(command.get_after_help().map(ToString::to_string));
    command.get_subcommands().for_each(|below| below_flags(below, found));
}

#[test]
fn every_example_in_a_help_is_understood() {
    let mut texts = Vec::new();
    below_flags(&Larix::command(), &mut texts);
    Tool::all().for_each(|tool| below_flags(&tools::command(tool), &mut texts));
    let mut understood = 0;
    for line in texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("  larix ")) {
        assert!(line.len() <= HELP_COLUMNS_MAX, "it would be wrapped, and not be one line to copy: {line}");
        for command in commands(line) {
            if let Some(result) = fault(&command) {
                assert!(result.is_ok(), "{line}: {result:?}");
                understood += 1;
            }
        }
    }
    assert!(understood >= EXAMPLES_MIN, "{understood} examples were found");
}

#[test]
fn commands_are_found_in_a_line() {
    let line = "A=b sudo larix cat -f x.conf | sort > ours && slapadd -l 'a b.ldif' <<'END'    # a word";
    let found = commands(line);
    let words: Vec<Vec<&str>> =
        found.iter().map(|command| command.iter().map(String::as_str).collect()).collect();
    assert_eq!(
        words,
        [&["larix", "cat", "-f", "x.conf"][..], &["sort"], &["ours"], &["slapadd", "-l", "a b.ldif"]]
    );
    assert!(fault(&found[0]).unwrap().is_ok());
    assert!(fault(&commands("larix cat --no-such-flag")[0]).unwrap().is_err());
    assert!(fault(&commands("larix no-such-command")[0]).unwrap().is_err());
    assert!(fault(&commands("larix search ... -b dc=x")[0]).is_none(), "a part of a command");
    assert!(fault(&commands("ldapsearch -b dc=x")[0]).is_none(), "not ours");
}
