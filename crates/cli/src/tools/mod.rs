//! The offline tools: one file a tool, all called through [`run`].

mod acl;
mod add;
mod advise;
mod auth;
mod backup;
mod cat;
mod changing;
mod check;
mod choice;
pub(crate) mod config_directory;
mod delete;
mod dn;
pub(crate) mod flags;
mod identities;
mod index;
mod modify;
mod opening;
mod passwd;
mod rewrite;
mod schema;
mod selection;
mod test;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, CommandFactory};

pub(crate) use choice::Chosen;
pub(crate) use flags::DatabaseArgs;

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Add,
    Cat,
    Index,
    Modify,
    Delete,
    Passwd,
    Test,
    Acl,
    Auth,
    Dn,
    Schema,
    /// Larix's own.
    Check,
    Advise,
    Backup,
    Restore,
    Rewrite,
}

/// The tool, its letter or short name after `-T`, slapd's name for it, and Larix's subcommand.
const TOOLS: [(Tool, &str, &str, &str); 16] = [
    (Tool::Add, "add", "slapadd", "add"),
    (Tool::Cat, "cat", "slapcat", "cat"),
    (Tool::Index, "index", "slapindex", "index"),
    (Tool::Modify, "modify", "slapmodify", "offline-modify"),
    (Tool::Delete, "delete", "slapdelete", "offline-delete"),
    (Tool::Passwd, "passwd", "slappasswd", "hash-password"),
    (Tool::Test, "test", "slaptest", "test"),
    (Tool::Acl, "acl", "slapacl", "acl"),
    (Tool::Auth, "auth", "slapauth", "auth"),
    (Tool::Dn, "dn", "slapdn", "dn"),
    (Tool::Schema, "schema", "slapschema", "schema"),
    (Tool::Check, "check", "slapcheck", "check"),
    (Tool::Advise, "advise", "slapadvise", "advise"),
    (Tool::Backup, "backup", "slapbackup", "backup"),
    (Tool::Restore, "restore", "slaprestore", "restore"),
    (Tool::Rewrite, "rewrite", "rewrite", "rewrite"),
];

impl Tool {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TOOLS.iter().map(|row| row.0)
    }

    /// By the name that the binary was called by.
    pub(crate) fn by_program_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("lt-").unwrap_or(name);
        TOOLS.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// By Larix's subcommand.
    pub(crate) fn by_subcommand(name: &str) -> Option<Self> {
        TOOLS.iter().find(|row| row.3 == name).map(|row| row.0)
    }

    /// By what follows `-T`: a name or the start of one, as OpenLDAP takes it (`a` is add, `t` test, `d` dn).
    pub(crate) fn by_letter_or_name(text: &str) -> Option<Self> {
        let text = text.strip_prefix("slap").unwrap_or(text);
        let by_letter = match text {
            "" => None,
            // `c` has been cat for as long as there is slapd.
            "c" => Some(Self::Cat),
            // OpenLDAP's `d` is dn, where the table would find delete first.
            "d" => Some(Self::Dn),
            "acl" => Some(Self::Acl),
            "auth" => Some(Self::Auth),
            _ => None,
        };
        by_letter
            .or_else(|| TOOLS.iter().find(|row| !text.is_empty() && row.1.starts_with(text)).map(|row| row.0))
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        TOOLS.iter().find(|row| row.0 == self).unwrap_or(&TOOLS[0])
    }

    pub(crate) fn program_name(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn subcommand(self) -> &'static str {
        self.row().3
    }

    /// The names after `-T`, for an error.
    pub(crate) fn names() -> String {
        TOOLS.map(|row| row.1).join(", ")
    }
}

/// The tool's command line, by its name below `larix`.
pub(crate) fn command(tool: Tool) -> Command {
    let command = match tool {
        Tool::Acl => acl::AclArgs::command(),
        Tool::Add => add::AddArgs::command(),
        Tool::Advise => advise::AdviseArgs::command(),
        Tool::Auth => auth::AuthArgs::command(),
        Tool::Backup => backup::BackupArgs::command(),
        Tool::Cat => cat::CatArgs::command(),
        Tool::Check => check::CheckArgs::command(),
        Tool::Delete => delete::DeleteArgs::command(),
        Tool::Dn => dn::DnArgs::command(),
        Tool::Index => index::IndexArgs::command(),
        Tool::Modify => modify::ModifyArgs::command(),
        Tool::Passwd => passwd::PasswdArgs::command(),
        Tool::Restore => backup::RestoreArgs::command(),
        Tool::Rewrite => rewrite::RewriteArgs::command(),
        Tool::Schema => schema::SchemaArgs::command(),
        Tool::Test => test::TestArgs::command(),
    };
    command.name(tool.subcommand())
}

/// Runs a tool. `name` is how it was called, for its messages; `arguments` are those after the name.
pub(crate) fn run(tool: Tool, name: &str, arguments: &[OsString]) -> ExitCode {
    match tool {
        Tool::Acl => acl::main(name, arguments),
        Tool::Add => add::main(name, arguments),
        Tool::Advise => advise::main(name, arguments),
        Tool::Backup => backup::take(name, arguments),
        Tool::Cat => cat::main(name, arguments),
        Tool::Check => check::main(name, arguments),
        Tool::Delete => delete::main(name, arguments),
        Tool::Index => index::main(name, arguments),
        Tool::Dn => dn::main(name, arguments),
        Tool::Modify => modify::main(name, arguments),
        Tool::Passwd => passwd::main(name, arguments),
        Tool::Restore => backup::restore(name, arguments),
        Tool::Rewrite => rewrite::main(name, arguments),
        Tool::Schema => schema::main(name, arguments),
        Tool::Test => test::main(name, arguments),
        Tool::Auth => auth::main(name, arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_by_every_name() {
        for (text, expected) in [
            ("a", Some(Tool::Add)),
            ("add", Some(Tool::Add)),
            ("c", Some(Tool::Cat)),
            ("i", Some(Tool::Index)),
            ("m", Some(Tool::Modify)),
            ("p", Some(Tool::Passwd)),
            ("t", Some(Tool::Test)),
            ("acl", Some(Tool::Acl)),
            ("auth", Some(Tool::Auth)),
            ("d", Some(Tool::Dn)),
            ("dn", Some(Tool::Dn)),
            ("s", Some(Tool::Schema)),
            ("slapcat", Some(Tool::Cat)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(Tool::by_letter_or_name(text), expected, "-T{text}");
        }
        assert_eq!(Tool::by_program_name("slapadd"), Some(Tool::Add));
        assert_eq!(Tool::by_program_name("larix"), None);
        assert_eq!(Tool::by_subcommand("offline-modify"), Some(Tool::Modify));
    }
}
