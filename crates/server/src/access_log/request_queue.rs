//! Operations that changed nothing, on their way to the log. Anyone may send them faster than they can be recorded: so many wait, and so
//! many bytes of them.

use std::collections::VecDeque;

use larix_engine::audit::{AuditFacts, Request};

/// Operations that wait to be recorded; what comes then is counted and left out. The change log itself waits without limit.
pub(super) const REQUESTS: usize = 65_536;
/// The same in bytes.
pub(super) const REQUEST_BYTES: usize = 64 << 20;

/// Operations with what is known of each, in the order in which they ended.
pub(super) type Requests = Vec<(Request, AuditFacts)>;

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    /// Each with its bytes.
    requests: VecDeque<(Request, AuditFacts, usize)>,
    bytes: usize,
    lost: u64,
}

impl RequestQueue {
    /// Takes one; false: there is no room for it, and it is counted.
    pub(super) fn push(&mut self, request: Request, facts: AuditFacts) -> bool {
        let own = size_of::<(Request, AuditFacts, usize)>() + request.bytes() + facts.bytes();
        let bytes = self.bytes.saturating_add(own);
        if self.requests.len() >= REQUESTS || bytes > REQUEST_BYTES {
            self.lost += 1;
            return false;
        }
        self.bytes = bytes;
        self.requests.push_back((request, facts, own));
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// A copy of the first: at least one, if there is any, and at most `most` with so many bytes. Whether there are more.
    pub(super) fn first(&self, most: usize, bytes_most: usize) -> (Requests, bool) {
        let (mut first, mut bytes) = (Requests::new(), 0_usize);
        for (request, facts, own) in self.requests.iter().take(most) {
            bytes = bytes.saturating_add(*own);
            if bytes > bytes_most && !first.is_empty() {
                break;
            }
            first.push((request.clone(), facts.clone()));
        }
        let more = first.len() < self.requests.len();
        (first, more)
    }

    /// So many of the first are recorded.
    pub(super) fn done(&mut self, count: usize) {
        let count = count.min(self.requests.len());
        let bytes: usize = self.requests.drain(..count).map(|(_, _, own)| own).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// How many there was no room for since it was asked last.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: usize = 8 << 20;

    fn compare(bytes: usize) -> (Request, AuditFacts) {
        (Request::Compare { assertion: vec![b'x'; bytes] }, AuditFacts::default())
    }

    fn push(queue: &mut RequestQueue, bytes: usize) -> bool {
        let (request, facts) = compare(bytes);
        queue.push(request, facts)
    }

    #[test]
    fn so_many_wait_and_so_many_bytes() {
        let mut queue = RequestQueue::default();
        let large = (0..100).filter(|_| push(&mut queue, 1 << 20)).count();
        assert_eq!((large, queue.take_lost(), queue.take_lost()), (63, 37, 0));
        // There is room for small ones.
        assert!(push(&mut queue, 1));
        queue.done(1);
        assert!(push(&mut queue, 1 << 20) && !push(&mut queue, 1 << 20));
        let mut queue = RequestQueue::default();
        assert_eq!((0..REQUESTS + 5).filter(|_| push(&mut queue, 1)).count(), REQUESTS);
        queue.done(REQUESTS);
        assert!(queue.is_empty());
        assert_eq!((queue.take_lost(), queue.bytes), (5, 0));
    }

    #[test]
    fn a_group_has_a_limit_and_is_never_empty() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.first(10, GROUP).0.len(), 0);
        for bytes in [9 << 20, 1, 1, 7 << 20, 1 << 20] {
            assert!(push(&mut queue, bytes));
        }
        let mut groups = Vec::new();
        while !queue.is_empty() {
            let (group, more) = queue.first(10, GROUP);
            groups.push((group.len(), more));
            queue.done(group.len());
        }
        assert_eq!(groups, [(1, true), (3, true), (1, false)]);
        (0..5).for_each(|_| assert!(push(&mut queue, 1)));
        let (group, more) = queue.first(2, GROUP);
        assert_eq!((group.len(), more), (2, true));
    }
}
