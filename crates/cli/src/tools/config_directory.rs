//! Changes of cn=config where it is stored, in a slapd.d that no server uses.

use anyhow::bail;
use larix_configuration::slapd_d::{InUse, Stamp};
use larix_configuration::{Config, ConfigChange, Requester, Source};
use larix_engine::controls::RequestControls;
use larix_engine::write::WriteOperation;
use larix_proto::{LdapResult, ResultCode};
use larix_server::clock::{SystemClock, SystemRandom};

/// Offline, cn=config is changed where it is stored, while no server runs with it and no other tool changes it.
///
/// # Errors
/// It is no slapd.d, or it is in use: says how it is changed then.
pub(crate) fn demand_directory(config: &Config) -> anyhow::Result<InUse> {
    match &config.source {
        Source::Directory(directory) => InUse::by_tool(directory).map_err(|error| anyhow::anyhow!("{error}")),
        _ => bail!("cn=config can be changed in a slapd.d alone (-F): edit the file"),
    }
}

/// As [`demand_directory`], for a tool that has read the configuration before it had the directory for itself: what another process
/// changed in between is in it then.
///
/// # Errors
/// As [`demand_directory`]; what cannot be read.
pub(crate) fn take_directory(config: &mut Config) -> anyhow::Result<InUse> {
    let in_use = demand_directory(config)?;
    if let Source::Directory(directory) = &config.source {
        let now = Config::from_slapd_d(directory);
        *config = now.map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    Ok(in_use)
}

/// Carries out one change of cn=config: it is in the directory when this returns success.
pub(crate) fn change_configuration(
    config: &mut Config,
    operation: WriteOperation,
    controls: RequestControls,
) -> LdapResult {
    let (clock, random) = (SystemClock, SystemRandom);
    let stamp = Stamp { clock: &clock, random: &random };
    let change = ConfigChange { operation, controls, requester: Requester::Offline };
    let changed = match config.changed(&change, &stamp) {
        Ok(changed) => changed,
        Err(refusal) => return refusal.0,
    };
    match changed.commit() {
        Ok(()) => {
            *config = changed.config;
            LdapResult::success()
        }
        Err(error) => LdapResult::with(ResultCode::OTHER, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use larix_configuration::Location;
    use larix_engine::write::{AttributeValues, Modification};
    use larix_proto::ModifyOperation;

    use super::*;

    fn add_rule(config: &mut Config, rule: &str) -> ResultCode {
        let attribute =
            AttributeValues { description: "olcAccess".to_owned(), values: vec![rule.as_bytes().to_vec()] };
        let changes = vec![Modification { operation: ModifyOperation::Add, attribute }];
        let object = "olcDatabase={-1}frontend,cn=config".to_owned();
        let operation = WriteOperation::Modify { object, changes };
        change_configuration(config, operation, RequestControls::default()).code
    }

    /// A tool that read the configuration before another one changed it must not write what it had read.
    #[test]
    fn what_another_tool_changed_before_the_lock_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, directory) = (folder.path().join("slapd.conf"), folder.path().join("slapd.d"));
        std::fs::write(&file, "database null\nsuffix cn=x\n").unwrap();
        let location = Location { file: Some(file), directory: Some(directory.clone()) };
        let (clock, random) = (SystemClock, SystemRandom);
        let mut slow = location.load(&Stamp { clock: &clock, random: &random }, false).unwrap();
        {
            let mut quick = Config::from_slapd_d(&directory).unwrap();
            let _in_use = take_directory(&mut quick).unwrap();
            assert_eq!(add_rule(&mut quick, "to dn.base=\"cn=quick\" by * read"), ResultCode::SUCCESS);
        }
        let in_use = take_directory(&mut slow).unwrap();
        assert_eq!(add_rule(&mut slow, "to dn.base=\"cn=slow\" by * read"), ResultCode::SUCCESS);
        drop(in_use);
        let file = directory.join("cn=config/olcDatabase={-1}frontend.ldif");
        let frontend = std::fs::read_to_string(file).unwrap();
        for name in ["cn=quick", "cn=slow"] {
            assert!(frontend.contains(name), "{frontend}");
        }
    }
}
