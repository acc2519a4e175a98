//! `larix completions` and `larix manual`: what shells and man(1) know of the commands, made from the same definitions that the
//! commands are parsed by, and from the table of directives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgAction, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use larix_configuration::{ListedDirective, ListedEffect, ListedScope, listed_directives};
use roff::{Inline, Roff, bold, italic, roman};

use crate::terminal;
use crate::tools::{self, Tool};

/// What the server's and the offline tools' pages stand under in a manual.
const ADMINISTRATION: &str = "8";
const COMMANDS: &str = "1";
const SOURCE: &str = concat!("larix ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// The folder for man1, man5 and man8; it is made where it is missing
    #[arg(value_name = "DIRECTORY")]
    to: PathBuf,
}

/// Prints the shell's script. `larix` has the subcommands that clap parses; the offline tools come in here.
pub(crate) fn completions(arguments: &CompletionsArgs, larix: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut whole(larix), "larix", &mut script);
    match io::Write::write_all(&mut io::stdout().lock(), &script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::end_with("larix", &anyhow::Error::new(error).context("cannot write to standard output"))
        }
    }
}

/// Writes the pages.
pub(crate) fn manual(arguments: &ManualArgs, larix: Command, slapd: Command) -> ExitCode {
    match write_all(&arguments.to, larix, slapd) {
        Ok(pages) => {
            println!("{pages} pages in {}", arguments.to.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("larix: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Every command below `larix`.
fn whole(larix: Command) -> Command {
    larix.subcommands(Tool::all().map(tools::command))
}

fn write_all(to: &Path, larix: Command, slapd: Command) -> anyhow::Result<usize> {
    let pages = pages(larix, slapd)?;
    for page in &pages {
        let folder = to.join(format!("man{}", page.section));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let file = folder.join(format!("{}.{}", page.name, page.section));
        fs::write(&file, &page.text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(pages.len())
}

struct Page {
    name: String,
    section: &'static str,
    text: Vec<u8>,
}

fn pages(larix: Command, slapd: Command) -> anyhow::Result<Vec<Page>> {
    let mut pages = Vec::new();
    let mut larix = whole(larix);
    larix.build();
    add_pages(&larix, &mut pages)?;
    let mut slapd = slapd;
    slapd.build();
    add_pages(&slapd, &mut pages)?;
    for tool in Tool::all() {
        // Under slapd's name the page is the same.
        let text = format!(".so man{ADMINISTRATION}/larix-{}.{ADMINISTRATION}\n", tool.subcommand());
        let name = tool.program_name().to_owned();
        pages.push(Page { name, section: ADMINISTRATION, text: text.into_bytes() });
    }
    pages.push(Page { name: "larix-slapd.conf".to_owned(), section: "5", text: directives()?.into_bytes() });
    Ok(pages)
}

/// The page of a command, and those of the commands below it.
fn add_pages(command: &Command, pages: &mut Vec<Page>) -> io::Result<()> {
    let name = page_name(command).to_owned();
    let section = section_of(&name);
    let mut rendered = Vec::new();
    let usage = match command.get_overridden_usage() {
        Some(usage) => usage.to_string(),
        None => synopsis(command),
    };
    // A date would make each build another.
    Man::new(command.clone().override_usage(usage))
        .section(section)
        .date("")
        .source(SOURCE)
        .manual("Larix")
        .render(&mut rendered)?;
    let mut text = String::from_utf8_lossy(&rendered).into_owned();
    // The page refers to the commands below it as if all were in section 1.
    for below in command.get_subcommands().map(page_name).filter(|name| section_of(name) != COMMANDS) {
        let escaped = below.replace('-', "\\-");
        text = text.replace(&format!("{escaped}({COMMANDS})"), &format!("{escaped}({ADMINISTRATION})"));
    }
    pages.push(Page { name, section, text: with_lines_kept(&text).into_bytes() });
    command.get_subcommands().try_for_each(|below| add_pages(below, pages))
}

/// A page whose text below the flags keeps its indented lines: examples are copied as they stand, and neither filled nor hyphenated.
fn with_lines_kept(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let mut text = format!("{before}.SH NOTES\n");
    let mut kept = false;
    for line in notes.lines() {
        let keeps = line.starts_with("  ");
        if keeps != kept {
            text.push_str(if keeps { ".nf\n" } else { ".fi\n" });
            kept = keeps;
        }
        text.push_str(line);
        text.push('\n');
    }
    if kept {
        text.push_str(".fi\n");
    }
    text
}

/// The command with its flags and their values: what must be there comes last, before the operands. The crate's own synopsis leaves
/// out the values.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (required, optional): (Vec<_>, Vec<_>) =
        shown().filter(|argument| !argument.is_positional()).partition(|flag| flag.is_required_set());
    let mut words = vec![name.to_owned()];
    words.extend(optional.into_iter().chain(required).map(with_values));
    words.extend(shown().filter(|argument| argument.is_positional()).map(with_values));
    if command.has_subcommands() {
        words.push(if command.is_subcommand_required_set() { "COMMAND" } else { "[COMMAND]" }.to_owned());
    }
    words.join(" ")
}

/// `[-f|--config FILE]`, `FILE`: as it stands in a synopsis.
fn with_values(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<_> = short.into_iter().chain(long).collect();
    let mut word = flags.join("|");
    let range = argument.get_num_args().unwrap_or_default();
    if range.takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        let values = if names.is_empty() { argument.get_id().as_str().to_owned() } else { names.join(" ") };
        let with_equals = argument.is_require_equals_set();
        word += &match (word.is_empty(), range.min_values() > 0, with_equals) {
            (true, ..) => values,
            (false, true, false) => format!(" {values}"),
            (false, true, true) => format!("={values}"),
            (false, false, false) => format!(" [{values}]"),
            (false, false, true) => format!("[={values}]"),
        };
    }
    let several = range.max_values() > 1 && argument.is_positional();
    let repeats = several || matches!(argument.get_action(), ArgAction::Append | ArgAction::Count);
    let dots = if repeats { "..." } else { "" };
    if argument.is_required_set() { format!("{word}{dots}") } else { format!("[{word}]{dots}") }
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn section_of(name: &str) -> &'static str {
    let is_tool = name.strip_prefix("larix-").is_some_and(|name| Tool::by_subcommand(name).is_some());
    if is_tool || name == "slapd" || name == "larix-serve" { ADMINISTRATION } else { COMMANDS }
}

/// larix-slapd.conf(5): every keyword with its attribute, and what becomes of it.
fn directives() -> io::Result<String> {
    let mut page = Roff::new();
    page.control("TH", ["larix-slapd.conf", "5", "", SOURCE, "Larix"]);
    page.control("SH", ["NAME"]);
    page.text([roman(
        "larix-slapd.conf - the keywords of slapd.conf and the attributes of cn=config that Larix knows",
    )]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "Larix reads slapd.conf and slapd.d as OpenLDAP does: a keyword means what it means there. This page has every keyword, \
         where it may stand, and its attribute under cn=config; one without a remark has its effect. What is taken without effect \
         is named by ",
    ), bold("larix test -v"), roman("; what is refused ends the start with file, line and column.")]);
    let all = listed_directives();
    for group in all.chunk_by(|a, b| a.place == b.place) {
        let Some(first) = group.first() else { continue };
        page.control("SH", [heading(first.place).as_str()]);
        // What needs no word stands together.
        for directive in group.iter().filter(|directive| directive.effect == ListedEffect::Obeyed) {
            page.text(title(directive));
            page.control("br", []);
        }
        for directive in group {
            let effect = match directive.effect {
                ListedEffect::Obeyed => continue,
                ListedEffect::Noted(why) => format!("Taken without effect: {why}."),
                ListedEffect::Refused(instead) => format!("Refused: {instead}."),
            };
            page.control("TP", []);
            page.text(title(directive));
            page.text([roman(effect)]);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("larix-serve"),
        roman("(8), "),
        bold("larix-test"),
        roman("(8), "),
        bold("larix-config"),
        roman("(1)"),
    ]);
    Ok(page.to_roff())
}

fn heading(place: ListedScope) -> String {
    match place {
        ListedScope::Anywhere => "ANYWHERE, FOR THE SERVER".to_owned(),
        ListedScope::BeforeDatabases => "BEFORE THE FIRST DATABASE".to_owned(),
        ListedScope::Shared => "BEFORE THE FIRST DATABASE, OR IN ONE".to_owned(),
        ListedScope::AnyDatabase => "IN ANY DATABASE".to_owned(),
        ListedScope::Database(kind) => format!("IN A DATABASE OF THE KIND {}", kind.to_uppercase()),
        ListedScope::ForeignDatabase => "IN A DATABASE OF A KIND THAT IS NOT SERVED".to_owned(),
        ListedScope::Backend => "BEHIND A BACKEND LINE".to_owned(),
        ListedScope::Overlay(name) => format!("BEHIND OVERLAY {}", name.to_uppercase()),
    }
}

/// The keyword under all its names, and the attribute.
fn title(directive: &ListedDirective) -> Vec<Inline> {
    let mut title = Vec::new();
    let names = std::iter::once(&directive.keyword).chain(directive.aliases);
    for keyword in names.filter(|word| !word.is_empty()) {
        title.push(roman(if title.is_empty() { "" } else { ", " }));
        title.push(bold(*keyword));
    }
    if !directive.attribute.is_empty() {
        title.push(roman(if title.is_empty() { "" } else { "  " }));
        title.push(italic(directive.attribute));
    }
    title
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Larix;
    use crate::serve;

    fn all() -> Vec<Page> {
        pages(Larix::command(), serve::slapd_command()).unwrap()
    }

    fn text(pages: &[Page], name: &str) -> String {
        let page = pages.iter().find(|page| page.name == name);
        String::from_utf8(page.unwrap_or_else(|| panic!("no page {name}")).text.clone()).unwrap()
    }

    #[test]
    fn every_command_has_a_page_under_each_of_its_names() {
        let pages = all();
        let mut names: Vec<_> = pages.iter().map(|page| (&page.name, page.section)).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "two pages of one name");
        for tool in Tool::all() {
            let own = format!("larix-{}", tool.subcommand());
            assert!(text(&pages, &own).contains(".SH OPTIONS"), "{own}");
            assert_eq!(text(&pages, tool.program_name()), format!(".so man8/{own}.8\n"));
        }
        for name in
            ["larix", "larix-serve", "larix-search", "larix-load-compare", "larix-config-apply", "slapd"]
        {
            assert!(text(&pages, name).contains(".SH SYNOPSIS"), "{name}");
        }
    }

    #[test]
    fn a_page_says_what_a_flag_does_and_no_time() {
        let pages = all();
        assert!(text(&pages, "larix-cat").contains("Go on after an entry that cannot be read"));
        let first = text(&pages, "larix");
        let title = first.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(!title.contains("20"), "{title}");
        for reference in ["larix\\-serve(8)", "larix\\-cat(8)", "larix\\-search(1)"] {
            assert!(first.contains(reference), "{reference}");
        }
    }

    #[test]
    fn examples_keep_their_lines() {
        let pages = all();
        let page = text(&pages, "larix-advise");
        let notes = page.split_once(".SH NOTES\n").unwrap().1;
        assert!(notes.contains(".nf\n  larix search \\-H ldapi:///"), "{notes}");
        assert!(notes.ends_with("\n  larix modify \\-H ldapi:/// \\-f indexes.ldif\n.fi\n"), "{notes}");
        assert!(pages.iter().all(|page| !String::from_utf8_lossy(&page.text).contains(".SH EXTRA")));
    }

    #[test]
    fn a_synopsis_has_the_values_of_flags() {
        let pages = all();
        let of = |name: &str| {
            let page = text(&pages, name);
            let at = page.find(".SH SYNOPSIS").unwrap();
            page[at..].lines().nth(1).unwrap().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        };
        for (name, start, parts) in [
            ("larix-cat", "larix cat ", &["[-f FILE]", "[-c]"][..]),
            ("larix-manual", "larix manual ", &["DIRECTORY"][..]),
            ("larix-config", "larix config ", &["COMMAND"][..]),
        ] {
            let synopsis = of(name);
            assert!(synopsis.starts_with(start), "{name}: {synopsis}");
            for part in parts {
                assert!(synopsis.contains(part), "{name} without {part}: {synopsis}");
            }
        }
    }

    #[test]
    fn directives_are_told_with_their_effect() {
        let page = text(&all(), "larix-slapd.conf");
        let of = |keyword: &str| {
            let at = page.find(&format!("\\fB{keyword}\\fR")).unwrap_or_else(|| panic!("no {keyword}"));
            page[at..].lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(of("suffix"), ".br");
        assert!(of("threadqueues").starts_with("Taken without effect: "));
        assert!(page.contains("Refused: "));
    }

    #[test]
    fn completions_know_tools_and_their_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut whole(Larix::command()), "larix", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("offline-modify") && script.contains("admin-password-file"), "{shell}");
        }
    }
}
