//! The searches of one connection that are under way, by where they are.

use std::collections::VecDeque;

use larix_proto::MessageId;

use super::Operation;

/// Where a search is.
#[derive(Debug)]
pub(crate) enum SearchLocation<S, A> {
    OnLoop(S),
    /// Its slices are computed elsewhere. Dropping what stands for it ends that.
    InBackground(A),
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Searches<S, A> {
    /// Each has a slice a turn.
    pub(super) short: VecDeque<(Operation, S)>,
    /// Those that have become long. Each goes elsewhere in its turn: one at a time, so that a connection has one buffer more than
    /// its own, and no more of the others' time than any other connection.
    pub(super) long: VecDeque<(Operation, S)>,
    pub(super) background: Option<(Operation, A)>,
    /// Those that wait for an answer from elsewhere.
    pub(super) waiting: Vec<(Operation, S)>,
    /// Those that wait for changes.
    pub(super) sleeping: Vec<(Operation, S)>,
}

impl<S, A> Default for Searches<S, A> {
    fn default() -> Self {
        Self {
            short: VecDeque::new(),
            long: VecDeque::new(),
            background: None,
            waiting: Vec::new(),
            sleeping: Vec::new(),
        }
    }
}

impl<S, A> Searches<S, A> {
    /// Those that are worked at, here or by others.
    pub(super) fn working(&self) -> usize {
        self.short.len() + self.long.len() + self.waiting.len() + usize::from(self.background.is_some())
    }

    /// Bytes of their requests.
    pub(super) fn working_bytes(&self) -> usize {
        let here =
            self.short.iter().chain(&self.long).chain(&self.waiting).map(|(operation, _)| operation.bytes);
        here.sum::<usize>() + self.background.as_ref().map_or(0, |(operation, _)| operation.bytes)
    }

    /// Whether any has something to do here.
    pub(super) fn can_go_on(&self) -> bool {
        !self.short.is_empty() || (self.background.is_none() && !self.long.is_empty())
    }

    /// A search that waits goes on.
    pub(super) fn wake(&mut self, serial: u64) {
        for queue in [&mut self.waiting, &mut self.sleeping] {
            if let Some(at) = queue.iter().position(|(operation, _)| operation.serial == serial) {
                return self.short.push_back(queue.swap_remove(at));
            }
        }
    }

    /// Takes out the search of this message.
    pub(super) fn take(&mut self, id: MessageId) -> Option<(Operation, SearchLocation<S, A>)> {
        let here = |(operation, search)| (operation, SearchLocation::OnLoop(search));
        for queue in [&mut self.short, &mut self.long] {
            if let Some(at) = queue.iter().position(|(operation, _)| operation.id == id) {
                return queue.remove(at).map(here);
            }
        }
        if let Some((operation, background_search)) =
            self.background.take_if(|(operation, _)| operation.id == id)
        {
            return Some((operation, SearchLocation::InBackground(background_search)));
        }
        for queue in [&mut self.waiting, &mut self.sleeping] {
            if let Some(at) = queue.iter().position(|(operation, _)| operation.id == id) {
                return Some(here(queue.swap_remove(at)));
            }
        }
        None
    }

    /// Takes out all that are worked at.
    pub(super) fn take_working(&mut self) -> Vec<(Operation, SearchLocation<S, A>)> {
        let here = std::mem::take(&mut self.short).into_iter().chain(std::mem::take(&mut self.long));
        let here = here.chain(std::mem::take(&mut self.waiting));
        let here = here.map(|(operation, search)| (operation, SearchLocation::OnLoop(search)));
        let background = self.background.take();
        here.chain(background.map(|(operation, background_search)| {
            (operation, SearchLocation::InBackground(background_search))
        }))
        .collect()
    }
}
