//! Changes of cn=config: one request makes another whole configuration, or says why it cannot.
//!
//! [`Config::changed`] is pure: it reads no file and writes none. What it gives is a complete, validated [`Config`] and
//! what slapd.d must become for it; [`ChangedConfig::commit`] writes that.

#[cfg(test)]
mod balancer_tests;
#[cfg(test)]
pub(super) mod fixture;
mod growth;
#[cfg(test)]
mod growth_tests;
mod ordered;
#[cfg(test)]
mod random_tests;
mod replicate;
mod rights;
#[cfg(test)]
mod tests;
mod transition;
mod tree;
mod usage;

use std::fmt;
use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::RequestControls;
use larix_engine::write::{WriteOperation, WriteOutcome};
use larix_proto::{ControlBuf, LdapResult, ResultCode};

use self::transition::{Effect, Transition};
use super::diagnostic::{ConfigError, Origin};
use super::entries::repeats;
use super::entry::ConfigEntry;
use super::model::{Config, Source};
use super::slapd_d::{FileChanges, Keeper, Stamp};

pub use self::replicate::{Present, ReplicatedConfig};

/// A change of cn=config, as requested: nothing of it has been checked.
#[derive(Debug, Clone)]
pub struct ConfigChange {
    pub operation: WriteOperation,
    pub controls: RequestControls,
    pub requester: Requester,
}

/// Who asks for a change, and so which rules apply to it.
#[derive(Debug, Clone)]
pub enum Requester {
    /// A client: the access rules of cn=config apply, as the published generation has them.
    Client { subject: Arc<Subject>, policy: Arc<AccessPolicy> },
    /// A tool that may write the files: no access rules, and operational attributes may be given.
    Offline,
}

/// What a change makes of the configuration: nothing of it is in force or on disk.
#[derive(Debug, Clone)]
pub struct ChangedConfig {
    /// Complete and validated.
    pub config: Config,
    /// The DN of the entry after the change, `{n}` and all; of a deleted entry the one it had.
    pub dn: String,
    /// The entry before the change; none of an added one.
    pub before: Option<Arc<ConfigEntry>>,
    /// The entry after the change; none of a deleted one.
    pub after: Option<Arc<ConfigEntry>>,
    /// Answers to pre-read and post-read controls.
    pub controls: Vec<ControlBuf>,
    /// The no-op control was given: neither commit nor publish it, answer `noOperation`.
    pub no_op: bool,
    /// What slapd.d must become, if there is one.
    files: Option<FileChanges>,
}

/// Why a change was refused, as the result for the client. The configuration is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRefusal(pub LdapResult);

impl ConfigRefusal {
    pub fn new(code: ResultCode, text: impl Into<String>) -> Self {
        Self(LdapResult::with(code, text))
    }
}

impl From<LdapResult> for ConfigRefusal {
    fn from(result: LdapResult) -> Self {
        Self(result)
    }
}

/// Of a configuration that would be invalid: what is wrong, where, and how to correct it, on one line.
impl From<ConfigError> for ConfigRefusal {
    fn from(error: ConfigError) -> Self {
        let mut text = match &error.origin {
            Origin::BuiltIn => error.message.clone(),
            origin => format!("{origin}: {}", error.message),
        };
        if let Some(excerpt) = &error.excerpt {
            text.push_str(&format!(" (at {} of \"{}\")", excerpt.column, excerpt.shown().0));
        }
        if let Some(help) = &error.help {
            text.push_str("; ");
            text.push_str(help);
        }
        let code = if is_definition(&error.origin) {
            ResultCode::INVALID_ATTRIBUTE_SYNTAX
        } else {
            ResultCode::OTHER
        };
        Self::new(code, text)
    }
}

/// Whether the change may name an attribute type or an object class that is not defined.
fn lacks_definition(refusal: &ConfigRefusal) -> bool {
    let ConfigRefusal(result) = refusal;
    matches!(
        result.code,
        ResultCode::INVALID_ATTRIBUTE_SYNTAX
            | ResultCode::UNDEFINED_ATTRIBUTE_TYPE
            | ResultCode::INVALID_DN_SYNTAX
    )
}

/// Whether it is the definition of a schema element: OpenLDAP 2.7 answers for one that it cannot take as for any value of
/// another syntax, and 2.5 as for the rest of the configuration.
fn is_definition(origin: &Origin) -> bool {
    let Origin::Value { attribute, .. } = origin else { return false };
    ["olcAttributeTypes", "olcObjectClasses", "olcLdapSyntaxes", "olcDitContentRules"]
        .iter()
        .any(|definitions| attribute.eq_ignore_ascii_case(definitions))
}

impl From<ConfigRefusal> for WriteOutcome {
    fn from(refusal: ConfigRefusal) -> Self {
        refusal.0.into()
    }
}

impl fmt::Display for ConfigRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigRefusal {}

impl Config {
    /// The configuration after this change.
    ///
    /// # Errors
    /// The result for the client, with OpenLDAP's codes.
    pub fn changed(&self, change: &ConfigChange, stamp: &Stamp<'_>) -> Result<ChangedConfig, ConfigRefusal> {
        self.changed_together(std::slice::from_ref(change), stamp).map_err(|(_, refusal)| refusal)
    }

    /// The configuration after these changes, made one after another. Only the last one has to leave a valid configuration.
    ///
    /// # Errors
    /// The number of the refused change, from 0, and why. If the configuration as a whole is not valid, that is the last one.
    pub fn changed_together(
        &self,
        changes: &[ConfigChange],
        stamp: &Stamp<'_>,
    ) -> Result<ChangedConfig, (usize, ConfigRefusal)> {
        let mut entries = self.shared_entries();
        entries.iter_mut().for_each(|entry| stamp.complete_shared(entry));
        let mut effect = None;
        let mut controls = Vec::new();
        // This configuration with what earlier ones of the changes define, once a later one asks for that.
        let mut defining: Option<Self> = None;
        for (number, change) in changes.iter().enumerate() {
            let carry = |config: &Self| {
                Transition::new(config, entries.clone(), change, stamp)
                    .and_then(|transition| transition.run(change))
            };
            let mut carried = carry(defining.as_ref().unwrap_or(self));
            if effect.is_some()
                && carried.as_ref().is_err_and(lacks_definition)
                && let Ok(next) = self.followed_by(entries.clone())
            {
                carried = carry(&next);
                defining = Some(next);
            }
            let Some(carried) = carried.map_err(|refusal| (number, refusal))? else { continue };
            if carried.effect.before.is_none()
                && let Some(after) = &carried.effect.after
                && let Some(text) = repeats(after, entries.iter().map(|entry| &**entry))
            {
                return Err((number, ConfigRefusal::new(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text)));
            }
            entries = carried.entries;
            controls.extend(carried.answers);
            effect = Some(carried.effect);
        }
        let last = changes.len().saturating_sub(1);
        let no_op = changes.iter().any(|change| change.controls.no_op);
        let Some(effect) = effect else { return Ok(self.unchanged(changes.last(), no_op)) };
        let offline = changes.iter().all(|change| matches!(change.requester, Requester::Offline));
        let (config, files) = self.accepted(entries, offline).map_err(|refusal| (last, refusal))?;
        let Effect { dn, before, after } = effect;
        Ok(ChangedConfig { config, dn, before, after, controls, no_op, files })
    }

    /// The configuration that these entries make, if it may follow this one, and what its slapd.d must become.
    fn accepted(
        &self,
        entries: Vec<Arc<ConfigEntry>>,
        offline: bool,
    ) -> Result<(Self, Option<FileChanges>), ConfigRefusal> {
        let config = self.followed_by(entries)?;
        if !offline {
            self.check_served(&config)?;
        }
        usage::check(self, &config)?;
        let files = match &self.source {
            Source::Directory(directory) => Some(FileChanges::between(directory, self, &config)?),
            Source::File(_) | Source::QuickStart => None,
        };
        Ok((config, files))
    }

    /// The outcome if nothing changes.
    fn unchanged(&self, change: Option<&ConfigChange>, no_op: bool) -> ChangedConfig {
        ChangedConfig {
            config: self.clone(),
            dn: change.map(|change| change.operation.target().to_owned()).unwrap_or_default(),
            before: None,
            after: None,
            controls: Vec::new(),
            no_op,
            files: None,
        }
    }

    /// Refuses a configuration with which the server would not start.
    pub(super) fn check_served(&self, next: &Self) -> Result<(), ConfigRefusal> {
        let known = self.refusals();
        match next.refusals().into_iter().find(|refusal| !known.contains(refusal)) {
            Some(refusal) => {
                let code = ResultCode::UNWILLING_TO_PERFORM;
                Err(ConfigRefusal::new(code, ConfigRefusal::from(refusal).0.diagnostic))
            }
            None => Ok(()),
        }
    }
}

impl ChangedConfig {
    /// Makes the change durable: all of it or nothing, also when the process is killed at any point. Of a configuration
    /// that was not read from a directory nothing is written: the change lives in memory.
    ///
    /// # Errors
    /// Names the file that could not be written; nothing has changed then.
    pub fn commit(&self) -> Result<(), ConfigError> {
        match &self.files {
            Some(files) if !self.no_op => files.commit(),
            _ => Ok(()),
        }
    }

    /// The same for a server, which keeps the journal of its changes.
    ///
    /// # Errors
    /// As [`Self::commit`], and a directory that holds no configuration any more.
    pub fn commit_by(&self, keeper: &mut Keeper) -> Result<(), ConfigError> {
        match &self.files {
            Some(files) if !self.no_op => {
                files.check_place()?;
                keeper.commit(files)
            }
            _ => Ok(()),
        }
    }

    /// The answer to the client, once the change is committed and published.
    pub fn outcome(&self) -> WriteOutcome {
        let code = if self.no_op { ResultCode::NO_OPERATION } else { ResultCode::SUCCESS };
        let mut outcome = WriteOutcome::from(LdapResult::new(code));
        outcome.controls.clone_from(&self.controls);
        outcome
    }
}
