//! A configuration as one readable file: slapd.conf, as [`super::slapd_conf`] reads it back.

use std::borrow::Cow;
use std::fmt::Write as _;

use larix_schema::NormalDn;

use super::builder::DirectiveContext;
use super::builder::directive::{Directive, Form, Scope};
use super::defaults::is_default;
use super::definition::meaning;
use super::diagnostic::without_secrets;
use super::directives::{self, REQUIRE_NOTHING, is_secret_setting};
use super::line;
use super::model::{Config, Database, Overlay, SchemaSection};
use super::settings::{Setting, Settings};
use super::values::ConfigDn;
use super::{balancer, chain, translucent, validate};

/// Columns after which a line goes on in the next one.
const WIDTH: usize = 100;

/// What separates words.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];
/// What ends a line, or may be taken for a part of its end.
const LINE_BREAKS: [char; 2] = ['\n', '\r'];

/// A configuration as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub text: String,
    /// What slapd.conf has no word for, as `attribute: value`; it stands in the text as comments.
    pub without_form: Vec<String>,
}

impl Config {
    /// The configuration as slapd.conf. Read again it gives the same model; comments of a file it came from are lost.
    ///
    /// The text holds the passwords that the configuration holds.
    pub fn to_slapd_conf(&self) -> Exported {
        let unusual = |setting: &&Setting| !setting.values.iter().all(|v| is_default(setting.attribute, v));
        let of_all = self.frontend.settings.iter().chain(self.global.settings.iter());
        let set_for_all = of_all.filter(unusual).map(|setting| setting.attribute).collect();
        let mut file = File { set_for_all, ..File::default() };
        file.comment("Written by `larix config export`. It says all that differs from the defaults.");
        for (number, list) in self.modules.iter().enumerate() {
            file.section(if number == 0 { "Modules" } else { "More modules" });
            file.settings(&list.settings, &[]);
        }
        file.section("The server as a whole");
        file.settings(&self.global.settings, &[]);
        if !self.schema_sections.is_empty() {
            file.section("Schema");
            self.schema_sections.iter().for_each(|section| file.schema(section));
        }
        for backend in &self.backends {
            file.section(&match backend.name.as_str() {
                balancer::MODULE => "The balancer".to_owned(),
                kind => format!("Every {kind} database"),
            });
            file.line("backend", &[&backend.name]);
            file.settings(&backend.settings, &[]);
            if let Some(balancer) = self.global.balancer.as_ref().filter(|_| backend.name == balancer::MODULE)
            {
                file.tiers(balancer);
            }
        }
        if !self.frontend.settings.is_empty() || !self.frontend.overlays.is_empty() {
            file.section("All databases");
            file.line("database", &["frontend"]);
            file.settings(&self.frontend.settings, &[]);
            file.overlays(&self.frontend.overlays);
        }
        for database in &self.databases {
            let title = match (database.kind.own_suffix(), database.suffixes.first()) {
                (Some(suffix), _) => suffix,
                (None, Some(suffix)) => suffix.text.as_str(),
                (None, None) => database.kind.name(),
            };
            file.section(title);
            file.line("database", &[database.kind.name()]);
            let overlays: Vec<&str> = database.overlays.iter().map(|overlay| overlay.name.as_str()).collect();
            let settings = file.taken(database, self);
            file.settings(&settings, &overlays);
            for target in database.kind.targets() {
                file.text.push('\n');
                file.settings(target, &[]);
            }
            file.overlays(&database.overlays);
        }
        Exported { text: file.text, without_form: file.without_form }
    }
}

#[derive(Default)]
struct File {
    text: String,
    without_form: Vec<String>,
    /// What the frontend sets to something else than the default.
    set_for_all: Vec<&'static str>,
    /// What stands before each keyword.
    prefix: &'static str,
}

impl File {
    fn comment(&mut self, text: &str) {
        self.text.push_str("# ");
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn section(&mut self, title: &str) {
        self.text.push('\n');
        self.comment(title);
    }

    fn line(&mut self, keyword: &str, arguments: &[&str]) {
        let words = arguments.iter().map(|word| quoted(word));
        self.wrapped(std::iter::once(keyword.to_owned()).chain(words));
    }

    /// Words with blanks between, in as many physical lines as it takes.
    fn wrapped(&mut self, words: impl Iterator<Item = String>) {
        let mut column = 0;
        for (number, word) in words.enumerate() {
            let width = word.chars().count();
            if number > 0 && column + 1 + width > WIDTH {
                self.text.push_str("\n   ");
                column = 3;
            }
            if number > 0 {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(&word);
            column += width;
        }
        self.text.push('\n');
    }

    /// The settings of a database that a file may have. A slapd.d of an earlier version may have a suffix that nothing
    /// reaches, and one may have the password of a root DN that is below no suffix. A file with either is refused.
    fn taken<'d>(&mut self, database: &'d Database, config: &Config) -> Cow<'d, Settings> {
        let unreached: Vec<&ConfigDn> = validate::unreached(database, config).collect();
        let reached = database.suffixes.iter().filter(|suffix| !unreached.contains(suffix));
        let reached: Vec<&NormalDn> = reached.map(|suffix| &suffix.normal).collect();
        let has_stray_root =
            database.kind.own_suffix_normal().is_none() && validate::stray_root(database, &reached).is_some();
        let password = database.root_password.as_ref().filter(|_| has_stray_root);
        if unreached.is_empty() && password.is_none() {
            return Cow::Borrowed(&database.settings);
        }
        let mut settings = database.settings.clone();
        for suffix in &unreached {
            self.left_out(format!("suffix {suffix}, which nothing reaches"));
            settings.take_out("olcSuffix", suffix.text.as_bytes());
        }
        if let Some(password) = password {
            self.left_out("rootpw, whose rootdn is below no suffix that stands here".to_owned());
            settings.take_out("olcRootPW", password);
        }
        Cow::Owned(settings)
    }

    fn left_out(&mut self, line: String) {
        self.comment(&format!("left out: {line}"));
        self.without_form.push(line);
    }

    /// Those of one section, in the order of the table of directives: it is one in which they can be read.
    fn settings(&mut self, settings: &Settings, overlays: &[&str]) {
        let written = settings.iter().filter(|setting| !self.holds_anyway(setting));
        let mut all: Vec<(usize, &Setting)> =
            written.map(|setting| (rank(setting.attribute, overlays), setting)).collect();
        all.sort_by_key(|(rank, _)| *rank);
        for (_, setting) in all {
            match directive(setting.attribute, overlays) {
                Some(directive) => self.setting(directive, setting),
                None => setting.values.iter().for_each(|value| self.without_form(setting.attribute, value)),
            }
        }
    }

    /// Whether a setting says what would hold without it. What the frontend sets holds for every database.
    fn holds_anyway(&self, setting: &Setting) -> bool {
        setting.values.iter().all(|value| is_default(setting.attribute, value))
            && !self.set_for_all.contains(&setting.attribute)
    }

    fn setting(&mut self, directive: &Directive, setting: &Setting) {
        let keyword = format!("{}{}", self.prefix, directive.keyword);
        let mut words = Vec::new();
        for value in &setting.values {
            match std::str::from_utf8(value).ok().filter(|text| has_form(directive, text)) {
                Some(text) if directive.form == Form::Each => {
                    if begins_line(directive, text) && !words.is_empty() {
                        self.line(&keyword, &std::mem::take(&mut words));
                    }
                    words.push(text);
                }
                Some(text) => self.value(directive, text),
                None => self.without_form(setting.attribute, value),
            }
        }
        if !words.is_empty() {
            self.line(&keyword, &words);
        }
    }

    fn value(&mut self, directive: &Directive, text: &str) {
        let keyword = format!("{}{}", self.prefix, directive.keyword);
        let keyword = keyword.as_str();
        match directive.form {
            Form::Whole | Form::Dn | Form::Bytes | Form::Secret | Form::Each => {
                self.wrapped([keyword.to_owned(), quoted_whole(text)].into_iter());
            }
            Form::Switch => self.line(keyword, &[if text == "FALSE" { "off" } else { "on" }]),
            // As written: only blanks between words may become line ends, none within quotes.
            Form::Rest => {
                self.wrapped(std::iter::once(keyword.to_owned()).chain(unquoted_words(text)));
            }
            Form::Words | Form::Command | Form::Own => {
                let words = line::value_words(text).into_iter().map(|word| word.text);
                // A command's name is the first word of its value.
                let own = (directive.form != Form::Command).then(|| keyword.to_owned());
                let own_words: Vec<String> = words.map(|word| quoted(&word)).collect();
                if directive.attribute == "olcAccess" {
                    self.access(keyword, &own_words);
                } else {
                    self.wrapped(own.into_iter().chain(own_words));
                }
            }
        }
    }

    /// One line a `by`, as people write rules.
    fn access(&mut self, keyword: &str, words: &[String]) {
        self.text.push_str(keyword);
        for word in words {
            self.text.push_str(if word == "by" { "\n    by" } else { " " });
            if word != "by" {
                self.text.push_str(word);
            }
        }
        self.text.push('\n');
    }

    fn schema(&mut self, section: &SchemaSection) {
        if is_bundled(section) {
            return self.line("schema", &[&section.name]);
        }
        self.line("schema-section", &[&section.name]);
        self.settings(&section.settings, &[]);
    }

    fn tiers(&mut self, balancer: &balancer::BalanceSettings) {
        for (number, tier) in (1..).zip(&balancer.tiers) {
            self.text.push('\n');
            self.named("tier", number, &tier.name);
            self.line("tier", &[tier.strategy.name()]);
            for (number, server) in (1..).zip(&tier.backends) {
                self.named("server", number, &server.name);
                let words = server.words(tier.strategy);
                self.line("backend-server", &words.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }

    /// A name under cn=config other than the one that it has from a file.
    fn named(&mut self, what: &str, number: usize, name: &str) {
        if name != format!("{what} {number}") {
            let line = format!("cn: {name}");
            let _ = writeln!(self.text, "# no slapd.conf form: {line}");
            self.without_form.push(line);
        }
    }

    fn overlays(&mut self, overlays: &[Overlay]) {
        for overlay in overlays {
            self.text.push('\n');
            // In slapd.conf, `disabled` is a line of databases.
            if overlay.disabled {
                self.left_out(format!("overlay {}, disabled", overlay.name));
                continue;
            }
            self.line("overlay", &[&overlay.name]);
            self.settings(&overlay.settings, &[&overlay.name]);
            for (number, server) in overlay.below.iter().enumerate() {
                if overlay.name == translucent::NAME {
                    self.settings(&server.settings, &[]);
                    continue;
                }
                let settings = chain::slapd_conf_settings(number, &server.settings);
                self.prefix = chain::PREFIX;
                self.settings(&settings, &[]);
                self.prefix = "";
                for (attribute, value) in chain::without_line(number, &server.settings) {
                    self.without_form(attribute, value);
                }
            }
        }
    }

    fn without_form(&mut self, attribute: &str, value: &[u8]) {
        let line = match std::str::from_utf8(value) {
            Ok(text) if !is_secret_setting(attribute) => {
                format!("{attribute}: {}", without_secrets(&text.replace(LINE_BREAKS, " ")))
            }
            _ => format!("{attribute}: {} bytes, not shown", value.len()),
        };
        let _ = writeln!(self.text, "# no slapd.conf form: {line}");
        self.without_form.push(line);
    }
}

/// Whether a word can only be the first of a line: cn=config has it anywhere.
fn begins_line(directive: &Directive, word: &str) -> bool {
    directive.attribute == "olcRequires" && word.eq_ignore_ascii_case(REQUIRE_NOTHING)
}

/// Whether a value can stand in a file, where a line ends at a line break within quotes, too.
fn has_form(directive: &Directive, text: &str) -> bool {
    match directive.form {
        // Blanks between words, and the texts of definitions, have other blanks in a file.
        Form::Rest | Form::Switch => true,
        Form::Words | Form::Command | Form::Own => {
            !line::value_words(text).iter().any(|word| word.text.contains(LINE_BREAKS))
        }
        Form::Whole | Form::Dn | Form::Bytes | Form::Secret | Form::Each => !text.contains(LINE_BREAKS),
    }
}

/// The directive that says an attribute in slapd.conf, by preference one of the overlay's own.
fn directive(attribute: &str, overlays: &[&str]) -> Option<&'static Directive> {
    let is_near = |directive: &&Directive| match directive.scope {
        Scope::Overlay(name) => overlays.iter().any(|overlay| overlay.eq_ignore_ascii_case(name)),
        _ => true,
    };
    let all = || {
        directives::all()
            .filter(|directive| directive.attribute == attribute && !directive.keyword.is_empty())
    };
    all().find(is_near).or_else(|| all().next())
}

/// Where a setting stands in its section: in the table's order, a database's names first and the long rules last.
fn rank(attribute: &str, overlays: &[&str]) -> usize {
    match attribute {
        "olcSuffix" => return 0,
        "olcAccess" => return usize::MAX - 1,
        _ => {}
    }
    let found = directive(attribute, overlays);
    found
        .and_then(|found| directives::all().position(|other| std::ptr::eq(other, found)))
        .map_or(usize::MAX, |place| place + 1)
}

/// A word as slapd.conf's reader gives it back: in quotes if it must be, quotes and backslashes escaped.
pub(super) fn quoted_whole(word: &str) -> String {
    let escaped = escaped(word);
    if word.is_empty() || word.contains(BLANKS) || word.starts_with('#') {
        return format!("\"{escaped}\"");
    }
    escaped
}

/// The same where `dn.exact="cn=a b"` reads better than quotes around the whole.
fn quoted(word: &str) -> String {
    match word.split_once('=') {
        Some((key, rest))
            if (rest.is_empty() || rest.contains(BLANKS))
                && !key.contains(BLANKS)
                && key.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            format!("{}=\"{}\"", escaped(key), escaped(rest))
        }
        _ => quoted_whole(word),
    }
}

fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The pieces of a definition between blanks that stand outside of its quotes.
fn unquoted_words(definition: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut in_quotes = false;
    for c in definition.chars() {
        in_quotes ^= c == '\'';
        if c == ' ' && !in_quotes {
            words.push(String::new());
        } else if let Some(last) = words.last_mut() {
            last.push(c);
        }
    }
    words
}

/// Whether a section defines what the bundled schema of its name defines, whatever the order and the descriptions.
fn is_bundled(section: &SchemaSection) -> bool {
    let Some(text) = larix_schema::bundled(&section.name) else { return false };
    let mut bundled = Vec::new();
    for line in line::logical_lines(text) {
        let (keyword, rest) = line.text.split_once([' ', '\t']).unwrap_or((&line.text, ""));
        let Some(directive) = directives::by_keyword(keyword, &DirectiveContext::default()) else {
            return false;
        };
        bundled.push(meaning(directive.attribute, rest));
    }
    let own = section.settings.iter().flat_map(|setting| {
        let values = setting.values.iter();
        values.map(|value| meaning(setting.attribute, &String::from_utf8_lossy(value)))
    });
    let mut own: Vec<String> = own.collect();
    own.sort_unstable();
    bundled.sort_unstable();
    own == bundled
}

#[cfg(test)]
mod tests;
