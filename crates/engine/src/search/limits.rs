//! Size and time limits of one search: what the client asks for against what it may have.

use larix_proto::{LdapResult, ResultCode};

use crate::database::{HardLimit, Limits, PagedTotal};

/// Asking for this many means: as many as I may have.
const AS_MANY_AS_ALLOWED: u32 = i32::MAX as u32;

/// What is asked for.
#[derive(Copy, Clone, Debug, Default)]
pub struct RequestedLimits {
    /// Entries; 0 is no limit.
    pub size: u32,
    /// Seconds; 0 is no limit.
    pub time: u32,
    /// With paged results: the page size, and entries on the pages before.
    pub page: Option<(u32, u32)>,
}

/// What holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Entries of this operation.
    pub size: Option<u32>,
    /// Seconds.
    pub time: Option<u32>,
    /// Candidates.
    pub unchecked: Option<u32>,
    pub no_estimate: bool,
}

/// The limits of a search. The root DN (`limits` is `None`) is limited by nothing but its own wishes.
pub fn effective(limits: Option<&Limits>, requested: RequestedLimits) -> Result<Effective, LdapResult> {
    let wish = |value: u32| (value != 0).then_some(value);
    let Some(limits) = limits else {
        let before = requested.page.map_or(0, |(_, before)| before);
        let size = wish(requested.size).map(|size| size.saturating_sub(before));
        return Ok(Effective { size, time: wish(requested.time), unchecked: None, no_estimate: false });
    };
    if limits.size_unchecked == Some(0) {
        return Err(LdapResult::new(ResultCode::ADMIN_LIMIT_EXCEEDED));
    }
    let time = one(limits.time_soft, limits.time_hard, requested.time);
    let size = match requested.page {
        None => one(limits.size_soft, limits.size_hard, requested.size),
        Some((size, before)) => paged(limits, requested.size, size, before)?,
    };
    Ok(Effective { size, time, unchecked: limits.size_unchecked, no_estimate: limits.no_estimate })
}

/// Asking for more than the hard limit is no error: it is what the client then gets.
fn one(soft: Option<u32>, hard: HardLimit, requested: u32) -> Option<u32> {
    match (requested, hard) {
        (0, _) => soft,
        // A soft limit of 0 is for those who ask for nothing.
        (requested, HardLimit::Soft) => {
            Some(soft.filter(|soft| *soft > 0).map_or(requested, |soft| requested.min(soft)))
        }
        (requested, HardLimit::Unlimited) => (requested != AS_MANY_AS_ALLOWED).then_some(requested),
        (requested, HardLimit::Count(hard)) => Some(requested.min(hard)),
    }
}

fn paged(limits: &Limits, requested: u32, page: u32, before: u32) -> Result<Option<u32>, LdapResult> {
    let exceeded = |text: &str| LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text);
    if limits.size_page.is_some_and(|most| page > most) {
        return Err(exceeded("illegal pagedResults page size"));
    }
    let total = match limits.size_total {
        PagedTotal::Disabled => return Err(exceeded("pagedResults control not allowed")),
        PagedTotal::Unlimited => None,
        PagedTotal::Count(total) => Some(total),
        PagedTotal::Hard => match limits.size_hard {
            HardLimit::Soft => limits.size_soft,
            HardLimit::Unlimited => None,
            HardLimit::Count(hard) => Some(hard),
        },
    };
    // An identity that is limited to small pages may not ask for many entries in advance.
    if let (Some(most), Some(total), 1..) = (limits.size_page, total, requested)
        && requested.min(total).saturating_sub(before) > most.saturating_add(1)
    {
        return Err(LdapResult::new(ResultCode::ADMIN_LIMIT_EXCEEDED));
    }
    let wish = (requested != 0 && requested != AS_MANY_AS_ALLOWED).then_some(requested);
    Ok(wish.into_iter().chain(total).min().map(|most| most.saturating_sub(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        limits: &Limits,
        requested: RequestedLimits,
        expected: Result<(Option<u32>, Option<u32>), &str>,
    ) {
        let found = effective(Some(limits), requested).map(|e| (e.size, e.time)).map_err(|e| e.diagnostic);
        assert_eq!(found, expected.map_err(str::to_owned), "{limits:?} {requested:?}");
    }

    #[test]
    fn what_may_be_asked_for() {
        let plain = Limits::default();
        let hard = Limits { size_hard: HardLimit::Count(1000), ..plain };
        let open = Limits { size_hard: HardLimit::Unlimited, ..plain };
        let size = |size| RequestedLimits { size, ..RequestedLimits::default() };
        check(&plain, size(0), Ok((Some(500), Some(3600))));
        check(&plain, size(10), Ok((Some(10), Some(3600))));
        check(&plain, size(1000), Ok((Some(500), Some(3600))));
        check(&hard, size(0), Ok((Some(500), Some(3600))));
        check(&hard, size(1000), Ok((Some(1000), Some(3600))));
        check(&hard, size(1001), Ok((Some(1000), Some(3600))));
        check(&hard, size(AS_MANY_AS_ALLOWED), Ok((Some(1000), Some(3600))));
        check(&open, size(7000), Ok((Some(7000), Some(3600))));
        check(&plain, RequestedLimits { time: 5, ..size(0) }, Ok((Some(500), Some(5))));
        let nothing = Limits { size_soft: Some(0), ..plain };
        check(&nothing, size(0), Ok((Some(0), Some(3600))));
        check(&nothing, size(3), Ok((Some(3), Some(3600))));
    }

    #[test]
    fn pages_are_limited_each_and_together() {
        let page = |size, page, before| RequestedLimits { size, time: 0, page: Some((page, before)) };
        let plain = Limits::default();
        check(&plain, page(0, 100, 0), Ok((Some(500), Some(3600))));
        check(&plain, page(0, 100, 400), Ok((Some(100), Some(3600))));
        check(&plain, page(0, 100, 600), Ok((Some(0), Some(3600))));
        check(&plain, page(501, 100, 100), Ok((Some(400), Some(3600))));
        let small = Limits { size_page: Some(50), ..plain };
        check(&small, page(0, 51, 0), Err("illegal pagedResults page size"));
        check(&small, page(51, 50, 0), Ok((Some(51), Some(3600))));
        check(&small, page(52, 50, 0), Err(""));
        check(&small, page(52, 50, 1), Ok((Some(51), Some(3600))));
        let none = Limits { size_total: PagedTotal::Disabled, ..plain };
        check(&none, page(0, 1, 0), Err("pagedResults control not allowed"));
        let all = Limits { size_total: PagedTotal::Unlimited, ..plain };
        check(&all, page(0, 100, 600), Ok((None, Some(3600))));
        check(&all, page(700, 100, 600), Ok((Some(100), Some(3600))));
    }
}
