//! What nodes tell each other: who tries to be the writer, who is connected, and messages. All of it hangs on leases of etcd, so that it
//! goes with those who made it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::{Effect, StreamLink};
use super::wire::{Condition, KeyValue, Op, Txn, Writer, fields, number};
use super::{Etcd, Shared};
use crate::engine::{
    CommitListener, HeldLease, Holding, Message, MessageListener, OLDEST_MESSAGE, RemovedNode, Said, Session,
};
use crate::error::{Fault, Status};
use crate::runtime::{AbortOnDrop, GRACE, call};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// What distinguishes a handle.
const HANDLE_BYTES: usize = 8;
/// How long a node counts as connected after its last sign, and how often it gives one.
const PRESENCE_SECONDS: u64 = 10;
const PRESENCE_PAUSE: Duration = Duration::from_secs(3);
/// Messages of so long share a lease, which lasts so much longer than the oldest that anybody waits for.
const MESSAGES_SHARE: Duration = Duration::from_secs(5);

/// The lease that messages hang on now.
pub(super) type MessageLease = Mutex<Option<(i64, Instant)>>;

fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl Shared {
    async fn grant(&self, seconds: u64) -> Result<i64, Fault> {
        let message = Writer::default().number(1, seconds.max(1)).done();
        let answer = self.client.call(GRANT, message.into(), Effect::None).await?;
        let lease = fields(&answer).map(|answer| number(&answer, 2).cast_signed());
        lease.filter(|lease| *lease != 0).ok_or_else(|| Fault::Lie("a lease without a number".to_owned()))
    }

    async fn revoke(&self, lease: i64) -> Result<(), Fault> {
        let message = Writer::default().number(1, lease.cast_unsigned()).done();
        match self.client.call(REVOKE, message.into(), Effect::None).await {
            Ok(_) => Ok(()),
            // It is over already.
            Err(Fault::Etcd(status)) if status.code == Status::NOT_FOUND => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// How long a lease lasts from now on, in seconds; 0: it is over.
    async fn keep_alive(&self, lease: i64) -> Result<u64, Fault> {
        let message = Writer::default().number(1, lease.cast_unsigned()).done();
        let answer = self.client.call(KEEP_ALIVE, message.into(), Effect::None).await?;
        let left = fields(&answer).map(|answer| number(&answer, 3).cast_signed()).unwrap_or(0);
        Ok(u64::try_from(left).unwrap_or(0))
    }

    async fn one(&self, key: Vec<u8>) -> Result<Option<KeyValue>, Fault> {
        let done = self.client.txn(&Txn::of(vec![Op::get(key)])).await?.done.into_iter().next();
        Ok(done.map(|done| done.found()).unwrap_or_default().into_iter().next())
    }

    /// How long a lease still lasts, in seconds; none: it is over.
    async fn time_to_live(&self, lease: i64) -> Result<Option<u64>, Fault> {
        let message = Writer::default().number(1, lease.cast_unsigned()).done();
        self.client.trip();
        let answer = self.client.call(TIME_TO_LIVE, message.into(), Effect::None).await?;
        // -1: it is over.
        let left = fields(&answer).map_or(-1, |answer| number(&answer, 3).cast_signed());
        Ok(u64::try_from(left).ok())
    }

    pub(super) async fn lease(&self) -> Result<Option<HeldLease>, Fault> {
        self.client.trip();
        let Some(found) = self.one(self.keys.lease()).await? else { return Ok(None) };
        let Some(left) = self.time_to_live(found.lease).await? else { return Ok(None) };
        let left = Duration::from_secs(left).max(Duration::from_millis(1));
        let Some((holder, node)) = found.value.split_at_checked(HANDLE_BYTES) else {
            return Err(Fault::Lie("a lease without a holder".to_owned()));
        };
        Ok(Some(HeldLease {
            holder: holder.to_vec(),
            node: String::from_utf8_lossy(node).into_owned(),
            left,
        }))
    }

    pub(super) async fn hold_lease(
        &self,
        holder: &[u8],
        node: &str,
        time: Duration,
    ) -> Result<Holding, Fault> {
        let value = [holder, node.as_bytes()].concat();
        self.client.trip();
        let txn = Txn::of(vec![Op::get(self.keys.lease()), Op::get(self.keys.kept())]);
        let mut done = self.client.txn(&txn).await?.done.into_iter();
        let mut next = || done.next().map(|done| done.found()).unwrap_or_default().into_iter().next();
        let (held, kept) = (next(), next());
        let holding = if held.is_some() { Holding::Still } else { Holding::Anew };
        let test = match held {
            Some(found) if !found.value.starts_with(holder) => return Ok(Holding::Others),
            Some(found) => {
                self.client.trip();
                if found.value == value && self.keep_alive(found.lease).await? >= seconds(time) {
                    return Ok(Holding::Still);
                }
                // It is over by now, or shorter than it is to be.
                Condition::Revision(found.changed)
            }
            None if kept.is_some_and(|kept| kept.value == holder) => return Ok(Holding::Others),
            None => Condition::Absent,
        };
        self.client.trip();
        let lease = self.grant(seconds(time)).await?;
        let key = self.keys.lease();
        let txn = Txn {
            conditions: vec![(key.clone(), test)],
            success: vec![Op::Put { key, value, lease }],
            failure: Vec::new(),
        };
        self.client.trip();
        let is_held = self.client.txn(&txn).await?.succeeded;
        if !is_held {
            self.revoke(lease).await?;
        }
        Ok(if is_held { holding } else { Holding::Others })
    }

    pub(super) async fn release_lease(&self, holder: &[u8]) -> Result<(), Fault> {
        self.client.trip();
        match self.one(self.keys.lease()).await? {
            // What hangs on it goes with it.
            Some(found) if found.value.starts_with(holder) => self.revoke(found.lease).await,
            _ => Ok(()),
        }
    }

    /// Ends the lease, if it is this node's or any. Whether somebody held it.
    pub(super) async fn end_lease(&self, node: Option<&str>, kept_away: Duration) -> Result<bool, Fault> {
        self.client.trip();
        let Some(found) = self.one(self.keys.lease()).await? else { return Ok(false) };
        let Some((holder, held_by)) = found.value.split_at_checked(HANDLE_BYTES) else {
            return Err(Fault::Lie("a lease without a holder".to_owned()));
        };
        if node.is_some_and(|node| node.as_bytes() != held_by) {
            return Ok(false);
        }
        let lease = self.grant(seconds(kept_away)).await?;
        let key = self.keys.lease();
        let txn = Txn {
            conditions: vec![(key.clone(), Condition::Revision(found.changed))],
            success: vec![Op::delete(key), Op::Put { key: self.keys.kept(), value: holder.to_vec(), lease }],
            failure: Vec::new(),
        };
        self.client.trip();
        Ok(self.client.txn(&txn).await?.succeeded)
    }

    async fn nodes(&self) -> Result<Vec<KeyValue>, Fault> {
        self.client.trip();
        let done = self.client.txn(&Txn::of(vec![Op::all(self.keys.nodes())])).await?.done.into_iter().next();
        Ok(done.map(|done| done.found()).unwrap_or_default())
    }

    pub(super) async fn sessions(&self) -> Result<Vec<Session>, Fault> {
        let mut sessions: Vec<Session> = Vec::new();
        for found in self.nodes().await? {
            let name = String::from_utf8_lossy(&found.value).into_owned();
            match sessions.iter_mut().find(|session| session.name == name) {
                Some(session) => session.connections += 1,
                None => sessions.push(Session { name, connections: 1 }),
            }
        }
        sessions.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(sessions)
    }

    /// What nodes say of themselves. When they gave their last sign is known by what is left of the lease that it hangs on.
    pub(super) async fn said(&self) -> Result<Vec<Said>, Fault> {
        self.client.trip();
        let done =
            self.client.txn(&Txn::of(vec![Op::all(self.keys.all_words())])).await?.done.into_iter().next();
        let mut all = Vec::new();
        for found in done.map(|done| done.found()).unwrap_or_default() {
            let Some(left) = self.time_to_live(found.lease).await? else { continue };
            let Some(at) = found.value.iter().position(|byte| *byte == b'\n') else { continue };
            let (node, words) = found.value.split_at(at);
            all.push(Said {
                node: String::from_utf8_lossy(node).into_owned(),
                words: words.iter().skip(1).copied().collect(),
                ago: Duration::from_secs(PRESENCE_SECONDS.saturating_sub(left)),
            });
        }
        Ok(all)
    }

    pub(super) async fn remove(
        &self,
        node: &str,
        name: &str,
        kept_away: Duration,
    ) -> Result<RemovedNode, Fault> {
        let held_lease = self.end_lease(Some(node), kept_away).await?;
        let name = shown(name);
        let mut connections = 0;
        for found in self.nodes().await?.into_iter().filter(|found| found.value == name.as_bytes()) {
            // What else hangs on its lease goes with it.
            self.revoke(found.lease).await?;
            connections += 1;
        }
        Ok(RemovedNode { held_lease, connections })
    }

    async fn say(&self, lease: i64, words: Option<&[u8]>) -> Result<(), Fault> {
        let key = self.keys.words(lease);
        let operation = match words {
            Some(words) => Op::Put { key, value: words.to_vec(), lease },
            None => Op::delete(key),
        };
        self.client.txn(&Txn::of(vec![operation])).await.map(drop)
    }

    async fn message_lease(&self) -> Result<i64, Fault> {
        let lock = || self.message_lease.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let known = *lock();
        if let Some((lease, since)) = known
            && now.duration_since(since) < MESSAGES_SHARE
        {
            return Ok(lease);
        }
        let lease = self.grant(seconds(OLDEST_MESSAGE + MESSAGES_SHARE)).await?;
        *lock() = Some((lease, now));
        Ok(lease)
    }

    pub(super) async fn send(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Fault> {
        let lease = self.message_lease().await?;
        self.client.trip();
        self.client.txn(&Txn::of(vec![Op::Put { key, value, lease }])).await.map(drop)
    }

    /// Takes the messages of mailboxes. Nobody else has taken those that it gives.
    async fn take(&self, mailboxes: Vec<(bool, Vec<u8>)>) -> Result<Vec<Message>, Fault> {
        let operations = mailboxes.iter().map(|(_, key)| Op::all(super::keys::below(key.clone()))).collect();
        self.client.trip();
        let done = self.client.txn(&Txn::of(operations)).await?.done;
        let mut found: Vec<(bool, usize, KeyValue)> = Vec::new();
        for ((to_leader, key), done) in mailboxes.into_iter().zip(done) {
            found.extend(done.found().into_iter().map(|found| (to_leader, key.len(), found)));
        }
        found.sort_by_key(|(_, _, found)| found.created);
        let mut messages = Vec::new();
        for some in found.chunks(self.txn_ops) {
            let gone = some.iter().map(|(_, _, found)| Op::delete(found.key.clone())).collect();
            self.client.trip();
            let done = self.client.txn(&Txn::of(gone)).await?.done;
            for ((to_leader, front, found), done) in some.iter().zip(done) {
                let is_ours = matches!(done, super::wire::OpResponse::Deleted(1));
                let tail = found.key.get(*front..).unwrap_or_default();
                let Some((sender, number)) = tail.split_at_checked(HANDLE_BYTES) else { continue };
                let Ok(number) = number.try_into().map(u64::from_be_bytes) else { continue };
                if is_ours {
                    let (to_leader, sender, body) = (*to_leader, sender.to_vec(), found.value.clone());
                    messages.push(Message { to_leader, sender, number, body });
                }
            }
        }
        Ok(messages)
    }
}

fn shown(name: &str) -> String {
    format!("larix {name}")
}

/// Has a node count as connected.
#[derive(Debug)]
pub(super) struct Presence {
    shared: Arc<Shared>,
    handle: Handle,
    lease: Arc<Mutex<Option<i64>>>,
    words: Arc<Words>,
    _task: AbortOnDrop,
}

/// What a node says of itself.
#[derive(Debug, Default)]
struct Words {
    current: Mutex<Option<Vec<u8>>>,
    changed: Notify,
}

impl Words {
    fn current(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    pub(super) fn begin(handle: &Handle, shared: &Arc<Shared>, name: &str) -> Self {
        let lease = Arc::new(Mutex::new(None));
        let words = Arc::<Words>::default();
        let (own, own_lease, name, own_words) =
            (Arc::clone(shared), Arc::clone(&lease), shown(name), Arc::clone(&words));
        let task = handle.spawn(async move {
            // What lies in the engine now.
            let mut stored = None;
            loop {
                let known = *own_lease.lock().unwrap_or_else(PoisonError::into_inner);
                let is_alive = match known {
                    Some(lease) => own.keep_alive(lease).await.is_ok_and(|left| left > 0),
                    None => false,
                };
                if !is_alive && let Ok(lease) = own.grant(PRESENCE_SECONDS).await {
                    *own_lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
                    let put = Op::Put { key: own.keys.node(lease), value: name.clone().into_bytes(), lease };
                    // The next sign tries again.
                    let _put = own.client.txn(&Txn::of(vec![put])).await;
                    stored = None;
                }
                let current = own_words.current().clone();
                let lease = *own_lease.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(lease) = lease
                    && current != stored
                    && own.say(lease, current.as_deref()).await.is_ok()
                {
                    stored = current;
                }
                // Either way it is time for the next sign.
                let _changed = tokio::time::timeout(PRESENCE_PAUSE, own_words.changed.notified()).await;
            }
        });
        let task = AbortOnDrop(Some(task.abort_handle()));
        Self { shared: Arc::clone(shared), handle: handle.clone(), lease, words, _task: task }
    }

    /// Has the task say this; none: nothing any more.
    pub(super) fn say(&self, words: Option<Vec<u8>>) {
        let mut current = self.words.current();
        if *current != words {
            *current = words;
            drop(current);
            self.words.changed.notify_one();
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = lease {
            let shared = Arc::clone(&self.shared);
            // Else it counts as connected until the lease ends.
            let _revoked = call(&self.handle, GRACE / 4, async move { shared.revoke(lease).await });
        }
    }
}

/// Hears of changes of keys.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    handle: Handle,
    notify: Arc<Notify>,
    ended: Arc<AtomicBool>,
    link: StreamLink,
    _task: AbortOnDrop,
}

impl Watch {
    /// Of one key where there is no `end`.
    fn begin(etcd: &Etcd, key: &[u8], end: &[u8]) -> Result<Self, Fault> {
        let shared = Arc::clone(&etcd.shared);
        // Field 5: etcd reports no deletes.
        let create = Writer::default().bytes(1, key).bytes(2, end).number(5, 1).done();
        let message = Writer::default().message(1, &create).done();
        let mut stream = etcd.run(async move { shared.client.stream(WATCH, message.into()).await })?;
        let link = stream.link();
        let (notify, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (notifier, end_flag) = (Arc::clone(&notify), Arc::clone(&ended));
        let task = etcd.runtime.handle.spawn(async move {
            while stream.receives().await {
                notifier.notify_one();
            }
            // A task that is woken sees the end.
            end_flag.store(true, Ordering::Release);
            notifier.notify_one();
        });
        Ok(Self {
            shared: Arc::clone(&etcd.shared),
            handle: etcd.runtime.handle.clone(),
            notify,
            ended,
            link,
            _task: AbortOnDrop(Some(task.abort_handle())),
        })
    }

    /// Of the newest commit.
    pub(super) fn of_commits(etcd: &Etcd) -> Result<Self, Fault> {
        Self::begin(etcd, &etcd.shared.keys.version(), &[])
    }

    fn hear(&self, time: Duration) -> Result<bool, Fault> {
        let notify = Arc::clone(&self.notify);
        call(&self.handle, time + GRACE, async move {
            Ok(tokio::time::timeout(time, notify.notified()).await.is_ok())
        })
    }

    fn end(&self) -> Result<(), Fault> {
        if self.ended.load(Ordering::Acquire) { Err(Fault::Lost) } else { Ok(()) }
    }
}

impl CommitListener for Watch {
    fn wait(&self, time: Duration) -> Result<bool, Fault> {
        let is_notified = self.hear(time)?;
        self.end()?;
        Ok(is_notified)
    }

    fn wake(&self) {
        self.notify.notify_one();
    }

    /// A connection that hangs is left by the next call over it.
    fn check(&self) -> Result<(), Fault> {
        self.end()?;
        if self.shared.client.goes_over(&self.link) { Ok(()) } else { Err(Fault::Lost) }
    }
}

/// Hears of messages.
#[derive(Debug)]
pub(super) struct Listener {
    watch: Watch,
    deadline: Duration,
}

impl Listener {
    pub(super) fn begin(etcd: &Etcd) -> Result<Self, Fault> {
        let (key, end) = etcd.shared.keys.messages();
        Ok(Self { watch: Watch::begin(etcd, &key, &end)?, deadline: etcd.deadline })
    }
}

impl MessageListener for Listener {
    fn wait(&self, time: Duration) -> Result<bool, Fault> {
        self.watch.hear(time)
    }

    fn wake(&self) {
        CommitListener::wake(&self.watch);
    }

    fn take(&self, own: &[u8], leads: bool) -> Result<Vec<Message>, Fault> {
        self.watch.end()?;
        let Watch { shared, handle, .. } = &self.watch;
        let mut mailboxes = vec![(false, shared.keys.mailbox(Some(own)))];
        if leads {
            mailboxes.push((true, shared.keys.mailbox(None)));
        }
        let shared = Arc::clone(shared);
        call(handle, self.deadline, async move { shared.take(mailboxes).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_seconds() {
        for (time, expected) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (3000, 3)] {
            assert_eq!(seconds(Duration::from_millis(time)), expected, "{time}");
        }
    }
}
