//! Work with passwords outside the writer, and one change that the server makes by itself: a hash of another scheme.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::Store;
use zeroize::Zeroizing;

use super::changes::check;
use super::{ChosenDatabase, Directory, DnLocation};
use crate::access::Subject;
use crate::change::prepare::{self, Change, ChangeKind, PreparedChange, RequiredAccess};
use crate::overlay::{Entries as _, PasswordWork, PendingChange, Purpose};
use crate::search::view_entries::ViewEntries;
use crate::write::authority::Authority;
use crate::write::{AttributeValues, Completion, Forward, Modification, WriteOperation, WriteRequest};

impl<S: Store> Directory<S> {
    /// As [`ChosenDatabase::has_password_work`], in the database that holds the change's target.
    pub fn has_password_work(&self, operation: &WriteOperation) -> bool {
        let target = self.frontend.schema.parse_dn(operation.target());
        let chosen = target.as_ref().ok().and_then(|dn| self.chosen(dn));
        chosen.is_some_and(|chosen| chosen.has_password_work(operation))
    }

    /// As [`ChosenDatabase::work_on_passwords`], in the database that holds the change's target.
    pub fn work_on_passwords(&self, request: &mut WriteRequest) {
        let target = self.frontend.schema.parse_dn(request.operation.target());
        if let Some(chosen) = target.as_ref().ok().and_then(|dn| self.chosen(dn)) {
            chosen.work_on_passwords(request);
        }
    }
}

impl<S: Store> ChosenDatabase<'_, S> {
    /// Stores the same password under another value, unless it was changed meanwhile. No policy has a say in it. `completion` is called
    /// at the end, or dropped where nothing can be stored.
    pub fn rehash(self, dn: &NormalDn, old: &[u8], new: &[u8], completion: Completion) {
        let served = self.served;
        let schema = &self.frontend.schema;
        let change =
            |kind, value: &[u8]| prepare::internal_change(schema, kind, "userPassword", vec![value.to_vec()]);
        let mods =
            change(ChangeKind::Delete, old).and_then(|old| Ok(vec![old, change(ChangeKind::Add, new)?]));
        let settings = served.database.current_settings();
        let Some(mods) = mods.ok().filter(|_| !settings.read_only && !settings.shadow) else {
            return;
        };
        let operation = PreparedChange::Modify { dn: dn.clone(), mods };
        let work = Arc::new(PasswordWork::of(Purpose::Rehash, None, None));
        served.submit_own(dn.as_str().to_owned(), operation, Some(work), completion);
    }

    /// Stores a password of an entry that has none, and by its hash, in the name of the root DN: for the overlays it is a change like any
    /// other. A shadow and a read-only database refuse.
    pub fn store_password(
        self,
        dn: &NormalDn,
        password: Zeroizing<Vec<u8>>,
        hash: &[u8],
        completion: Completion,
    ) {
        let served = self.served;
        let settings = served.database.current_settings();
        if settings.read_only || settings.shadow {
            let text = "the database takes no password: it is a shadow, or read-only";
            return completion(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        let schema = &self.frontend.schema;
        match prepare::internal_change(schema, ChangeKind::Add, "userPassword", vec![hash.to_vec()]) {
            Ok(change) => {
                let operation = PreparedChange::Modify { dn: dn.clone(), mods: vec![change] };
                let work = Arc::new(PasswordWork::of(Purpose::Change, None, Some(password)));
                served.submit_own(dn.as_str().to_owned(), operation, Some(work), completion);
            }
            Err(refused) => completion(refused.into()),
        }
    }

    /// What has the provider of a shadow store such a password, where something hands it on (`overlay chain`); `None`: this server stores it, or
    /// nobody.
    pub fn forwarded_password(self, dn: &NormalDn, hash: &[u8]) -> Option<Forward> {
        let settings = self.served.database.current_settings();
        let password =
            AttributeValues { description: "userPassword".to_owned(), values: vec![hash.to_vec()] };
        let changes = vec![Modification { operation: ModifyOperation::Add, attribute: password }];
        let referrals = settings.update_referrals.clone();
        (settings.shadow && settings.forwards).then(|| Forward {
            referrals,
            password: Some(WriteOperation::Modify { object: dn.as_str().to_owned(), changes }),
            ..Forward::default()
        })
    }

    /// Whether the requester may replace the password of this entry. Others must not learn whether an old password is right.
    pub fn may_replace_password(self, subject: &Subject, dn: &NormalDn) -> bool {
        let database = &self.served.database;
        let Ok(snapshot) = database.snapshot_for(&[dn]) else { return false };
        let Ok(view) = database.view(&snapshot) else { return false };
        let replace = Change {
            kind: ChangeKind::Replace,
            description: AttributeDescription::plain(self.known.user_password),
            values: Vec::new(),
            keys: Vec::new(),
            access: RequiredAccess::User,
        };
        let add = Change { kind: ChangeKind::Add, values: vec![Vec::new()], ..replace.clone() };
        let operation = PreparedChange::Modify { dn: dn.clone(), mods: vec![replace, add] };
        let authority = Authority { view: &view, subject };
        authority.admits(&operation).unwrap_or(false)
    }

    /// How many bytes a new password of this entry has at least and at most, where an overlay has a rule for it. A store that cannot be
    /// read says nothing: the overlays judge the change in any case.
    pub fn password_length(self, dn: &NormalDn) -> Option<RangeInclusive<usize>> {
        let database = &self.served.database;
        if !database.current_settings().overlays.iter().any(|overlay| overlay.works_on_passwords()) {
            return None;
        }
        let snapshot = database.store().snapshot().ok()?;
        let view = database.view(&snapshot).ok()?;
        let entries = ViewEntries::of(&view);
        let entry = entries.entry(dn).ok()??;
        let schema = &self.frontend.schema;
        let mut overlays = view.settings.overlays.iter();
        overlays.find_map(|overlay| overlay.password_length(dn, &entry, schema, &entries).ok().flatten())
    }

    /// Whether a change sets a password that needs work: then [`Self::work_on_passwords`] is worth a call, on
    /// a thread that may take its time, before [`Self::submit_at`].
    pub fn has_password_work(self, operation: &WriteOperation) -> bool {
        let settings = self.served.database.current_settings();
        if !settings.overlays.iter().any(|overlay| overlay.works_on_passwords()) {
            return false;
        }
        let is_password = |description: &str| {
            let described = self.frontend.schema.describe(description);
            described.is_ok_and(|description| description.attribute == self.known.user_password)
        };
        match operation {
            WriteOperation::Add { attributes, .. } => attributes.iter().any(|a| is_password(&a.description)),
            WriteOperation::Modify { changes, .. } => {
                changes.iter().any(|change| is_password(&change.attribute.description))
            }
            _ => false,
        }
    }

    /// Shows a change to the overlays that have work with its passwords, so that the writer finds it done. What they say is
    /// not heeded here: the writer asks them again.
    pub fn work_on_passwords(self, request: &mut WriteRequest) {
        let work = Arc::clone(request.passwords.get_or_insert_with(Arc::<PasswordWork>::default));
        work.begin();
        self.ask_about_passwords(request, &work);
        work.finish();
    }

    fn ask_about_passwords(self, request: &WriteRequest, work: &PasswordWork) {
        let served = self.served;
        let database = &served.database;
        let Ok(snapshot) = database.store().snapshot() else { return };
        let Ok(view) = database.view(&snapshot) else { return };
        // No rename brings passwords along: no caller asks where another name is.
        let admitted = check(self.frontend, request.clone(), None, false)
            .and_then(|checked| self.admit(&view.settings, checked, &|_| DnLocation::Here));
        let Ok(task) = admitted else { return };
        let authority = Authority { view: &view, subject: &task.subject };
        // The time that the work takes is for those to see who may make the change.
        if !authority.admits(&task.operation).unwrap_or(false) {
            return;
        }
        let entries = ViewEntries::of(&view);
        for overlay in view.settings.overlays.iter().filter(|overlay| overlay.works_on_passwords()) {
            let _ = overlay.prepare(&PendingChange {
                operation: &task.operation,
                subject: &task.subject,
                controls: &task.controls,
                schema: &self.frontend.schema,
                derived: false,
                required_by: None,
                is_final: false,
                entries: &entries,
                now: served.clock.now(),
                random: &*served.random,
                passwords: work,
            });
        }
    }
}
