//! One server through the stages of one round: configured, loaded, started, counted, asked, counted again, stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::Options;
use super::folder::{Folder, Written, disk};
use super::measure::{ServerUnderTest, measure};
use super::outcome::{LoadFigures, Outcome, StageFigures};
use super::progress::{Plan, Progress};
use super::rows::Rows;
use crate::generate::ROOT_PASSWORD;
use crate::peer::{
    Access, Database, Given, Guard, LogLevel, Paths, Peer, Program, Running, Session, Start, SyslogSink,
    configuration, run_tool,
};
use crate::scenario::{Scenario, Stage};

/// One server with its folder.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    position: usize,
    peer: &'a Peer,
    options: &'a Options,
    guard: &'a Guard,
    contents: &'a [Written],
    /// Configuration, databases and log of this server.
    folder: PathBuf,
    /// Entries that each database must have, above the acknowledged adds of a stage.
    expected: Vec<u64>,
    /// What the last load left on the disk.
    loaded_disk: Option<u64>,
    /// The highest number that was given to an added entry.
    sequence: u64,
    sink: Option<&'a SyslogSink>,
    /// Lines that it sent to syslog, in the order of [`LogLevel::ALL`].
    lines: [u64; LogLevel::ALL.len()],
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        position: usize,
        peer: &'a Peer,
        options: &'a Options,
        guard: &'a Guard,
        folder: &Folder,
        contents: &'a [Written],
        sink: Option<&'a SyslogSink>,
    ) -> Self {
        Self {
            position,
            peer,
            options,
            guard,
            contents,
            folder: folder.path().join(format!("server-{position}")),
            expected: Vec::new(),
            loaded_disk: None,
            sequence: options.entries,
            sink,
            lines: [0; LogLevel::ALL.len()],
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.peer.name
    }

    /// Lines that it sent to syslog at a level.
    pub(super) fn lines(&self, level: LogLevel) -> u64 {
        let counts = LogLevel::ALL.into_iter().zip(self.lines);
        counts.filter(|(known, _)| *known == level).map(|(_, lines)| lines).sum()
    }

    /// All stages of one round.
    pub(super) fn run(
        &mut self,
        scenario: &Scenario,
        round: u32,
        rows: &mut Rows,
        plan: &mut Plan,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> anyhow::Result<()> {
        for (position, stage) in scenario.stages.iter().enumerate() {
            let mut turn =
                Turn { round, position, rows: &mut *rows, plan: &mut *plan, progress: &mut *progress };
            match &self.peer.access {
                Access::Program(program) => self.program_stage(program, stage, &mut turn)?,
                Access::Given(given) => self.given_stage(given, scenario, stage, &mut turn)?,
            }
        }
        if !self.options.load_once && !self.options.keep && self.data().exists() {
            // The next server's databases need the room.
            fs::remove_dir_all(self.data())
                .with_context(|| format!("cannot remove {}", self.data().display()))?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn program_stage(
        &mut self,
        program: &Program,
        stage: &Stage,
        turn: &mut Turn<'_, '_>,
    ) -> anyhow::Result<()> {
        turn.begin(self.name(), &format!("load of {}", stage.name));
        let configuration = self.configure(program, stage, LogLevel::Nothing)?;
        let loaded_before = self.options.load_once && turn.round > 0 && stage_can_stay(turn);
        let loaded = if stage.keeps_data || loaded_before {
            None
        } else {
            Some(self.load(program, stage, &configuration)?)
        };
        let log = self.folder.join("log");
        let command = |address| program.serve_command(&configuration, address);
        let level = stage.log_level.unwrap_or(self.options.log_level);
        self.configure(program, stage, level)?;
        let start = Start {
            name: &self.peer.name,
            command: &command,
            port: self.options.port,
            cores: stage.cores,
            log: &log,
        };
        let mut running = Running::start(self.guard, &start)?;
        let databases = stage.directory.databases();
        self.check_counts(running.address, &databases, &[]).map_err(|error| running.explain(error))?;
        let served = StageFigures {
            loaded,
            loaded_disk: self.loaded_disk,
            start_seconds: Some(running.start_seconds),
        };
        turn.end(self.position, 0);
        let mut added = vec![0; databases.len()];
        for (part, step) in stage.steps.iter().enumerate() {
            turn.begin(self.name(), &format!("{}, {}", stage.name, step.title));
            let identities: Vec<(String, String)> =
                databases.iter().map(|database| (database.root_dn.clone(), ROOT_PASSWORD.into())).collect();
            let under_test = ServerUnderTest {
                address: running.address,
                identities: &identities,
                process: Some(running.process_id()),
                lines: self.sink.filter(|_| level == LogLevel::Stats),
                data: Some(&self.data()),
                seed: self.options.seed + u64::from(turn.round),
                suffixes: &databases.iter().map(|database| database.suffix.clone()).collect::<Vec<_>>(),
            };
            let outcome = measure(step, &under_test, &mut self.sequence, &mut added)
                .map_err(|error| running.explain(error))
                .with_context(|| format!("in {:?}", step.title))?;
            turn.rows.take(step, self.position, turn.round, &outcome, &served);
            turn.end(self.position, part + 1);
        }
        // Stages that add nothing need no second count.
        if added.iter().any(|count| *count > 0) {
            self.check_counts(running.address, &databases, &added).map_err(|error| running.explain(error))?;
        }
        let process = running.process_id();
        turn.rows.notes.extend(running.stop());
        let sent = self.sink.map_or(0, |sink| sink.line_count(process));
        let counts = LogLevel::ALL.into_iter().zip(&mut self.lines);
        counts.filter(|(known, _)| *known == level).for_each(|(_, lines)| *lines += sent);
        Ok(())
    }

    fn given_stage(
        &mut self,
        given: &Given,
        scenario: &Scenario,
        stage: &Stage,
        turn: &mut Turn<'_, '_>,
    ) -> anyhow::Result<()> {
        let databases = stage.directory.databases();
        let moved = |dn: &str| {
            given.base.as_ref().map_or_else(|| dn.to_owned(), |base| rebase(dn, &scenario.base, base))
        };
        let mut added = vec![0; databases.len()];
        for (part, step) in stage.steps.iter().enumerate() {
            turn.begin(self.name(), &format!("{}, {}", stage.name, step.title));
            let mut step = step.clone();
            step.move_names(&moved);
            let outcome = match step.impossible_when_given(stage, given.bind.is_some()) {
                Some(why) => Outcome { note: Some(why.to_owned()), ..Outcome::default() },
                None => {
                    let identities: Vec<(String, String)> =
                        given.bind.iter().cycle().take(databases.len()).cloned().collect();
                    let under_test = ServerUnderTest {
                        address: given.address,
                        identities: &identities,
                        process: given.process,
                        lines: None,
                        data: None,
                        seed: self.options.seed + u64::from(turn.round),
                        suffixes: &[],
                    };
                    measure(&step, &under_test, &mut self.sequence, &mut added)
                        .with_context(|| format!("in {:?}", step.title))?
                }
            };
            turn.rows.take(&step, self.position, turn.round, &outcome, &StageFigures::default());
            turn.end(self.position, part + 1);
        }
        turn.end(self.position, 0);
        Ok(())
    }

    /// Writes the stage's schema and slapd.conf, with the log level.
    fn configure(&self, program: &Program, stage: &Stage, level: LogLevel) -> anyhow::Result<PathBuf> {
        let write = |path: &Path, text: &str| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        let mut own_schemas = Vec::new();
        for (name, text) in &stage.directory.schemas {
            let path = self.folder.join(format!("{name}.schema"));
            write(&path, text)?;
            own_schemas.push(path);
        }
        let paths = Paths { schema: &self.options.schema, own_schemas: &own_schemas, data: &self.data() };
        let databases = stage.directory.databases();
        let text = configuration(
            &program.preamble,
            &databases,
            (stage.directory.online_configuration, level),
            &paths,
        );
        let path = self.folder.join("slapd.conf");
        write(&path, &text)?;
        Ok(path)
    }

    /// Loads every database of the stage into new folders.
    fn load(
        &mut self,
        program: &Program,
        stage: &Stage,
        configuration: &Path,
    ) -> anyhow::Result<LoadFigures> {
        let data = self.data();
        if data.exists() {
            fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        let mut loaded = LoadFigures::default();
        self.expected.clear();
        let log = self.folder.join("load.log");
        for position in 0..stage.directory.databases.len() {
            let folder = data.join(position.to_string());
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for (database, content) in &stage.directory.databases {
            let written = Written::find(self.contents, content)?;
            let command: Command = program.load_command(configuration, &database.suffix, &written.file);
            let cost = run_tool(self.guard, command, &format!("the load by {}", self.peer.name), &log)?;
            loaded.seconds += cost.seconds;
            loaded.cpu_seconds += cost.cpu_seconds;
            loaded.entries += written.entries;
            self.expected.push(written.entries);
        }
        self.loaded_disk = Some(disk(&data)?);
        Ok(loaded)
    }

    /// Counts the entries of each database, which also brings all of it into memory once, for each server alike.
    fn check_counts(
        &mut self,
        server: SocketAddr,
        databases: &[Database],
        added: &[u64],
    ) -> anyhow::Result<()> {
        for (position, database) in databases.iter().enumerate() {
            let root = (database.root_dn.clone(), ROOT_PASSWORD.to_owned());
            let count = Session::open(server, Some(&root))?.count(&database.suffix)?;
            let loaded = self.expected.get(position).copied().unwrap_or_default();
            let expected = loaded + added.get(position).copied().unwrap_or_default();
            if count < expected || (added.is_empty() && count > expected) {
                bail!(
                    "{} has {count} entries below {:?} and {expected} were loaded or acknowledged",
                    self.peer.name,
                    database.suffix
                );
            }
            if let Some(entries) = self.expected.get_mut(position) {
                *entries = count;
            }
        }
        Ok(())
    }
}

/// What the stages of one round share.
struct Turn<'a, 'b> {
    round: u32,
    position: usize,
    rows: &'a mut Rows,
    plan: &'a mut Plan,
    progress: &'a mut (dyn FnMut(&Progress<'_>) + 'b),
}

impl Turn<'_, '_> {
    fn begin(&mut self, server: &str, what: &str) {
        self.plan.begin_part();
        self.plan.show(self.progress, server, what);
    }

    fn end(&mut self, server: usize, part: usize) {
        self.plan.end_part(server, self.position, part);
    }
}

/// Whether the data of an earlier round are still the first stage's: later stages have taken the folder.
fn stage_can_stay(turn: &Turn<'_, '_>) -> bool {
    turn.plan.loads() == 1
}

/// The DN below `to` instead of `from`.
fn rebase(dn: &str, from: &str, to: &str) -> String {
    match dn.strip_suffix(from) {
        Some("") => to.to_owned(),
        Some(above) if above.ends_with(',') => format!("{above}{to}"),
        _ => dn.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_move_to_another_base() {
        for (dn, expected) in [
            ("dc=com", "dc=example,dc=org"),
            ("uid={n},dc=com", "uid={n},dc=example,dc=org"),
            ("uid={n},xdc=com", "uid={n},xdc=com"),
            ("cn=config-admin", "cn=config-admin"),
        ] {
            assert_eq!(rebase(dn, "dc=com", "dc=example,dc=org"), expected);
        }
    }
}
