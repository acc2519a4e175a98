//! How far a replica is behind, by the contextCSN of both servers.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use larix_proto::calendar::days_from_civil;
use larix_proto::{FilterBuf, Response, Scope, client};

use super::connection::{ask, exchange};
use super::transport::{Dialer, Transport};
use super::{Identity, Lag, LagOptions, Options, clock};

/// How long the watcher waits after the load for the replica to have everything.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// Asks both servers in turn.
#[derive(Debug)]
pub(super) struct Watcher {
    provider: Transport,
    consumer: Transport,
    base: String,
    every: Duration,
}

/// The newest change of one server id: (server id, seconds since 1970, the CSN).
type Newest = (u16, f64, String);

impl Watcher {
    pub(super) fn open(options: &Options, lag: &LagOptions) -> anyhow::Result<Self> {
        let open = |server| -> anyhow::Result<Transport> {
            let mut transport = Dialer::new(server)?.connect()?;
            if let Identity::Simple { dn, password } = &options.identity {
                ask(&mut transport, &format!("the bind as {dn:?}"), |out, id| {
                    client::simple_bind(out, id, dn, password.as_bytes(), &[]);
                })?;
            }
            Ok(transport)
        };
        let mut watcher = Self {
            provider: open(&options.server)?,
            consumer: open(&lag.consumer)?,
            base: lag.base.clone(),
            every: lag.every.max(Duration::from_millis(1)),
        };
        let none = |server| format!("{server} shows no contextCSN at {:?}", lag.base);
        anyhow::ensure!(
            !context_csn(&mut watcher.provider, &watcher.base)?.is_empty(),
            none(&options.server)
        );
        context_csn(&mut watcher.consumer, &watcher.base).with_context(|| none(&lag.consumer))?;
        Ok(watcher)
    }

    /// Watches until the other end of `finished` is gone, then until the replica has caught up.
    pub(super) fn watch(mut self, start: Instant, finished: &Receiver<()>) -> anyhow::Result<Lag> {
        let mut lag = Lag { samples: Vec::new(), max_seconds: 0.0, caught_up_after: None };
        while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(self.every) {
            let lag_seconds = self.lag_seconds()?;
            lag.samples.push((start.elapsed().as_secs_f64(), lag_seconds));
            lag.max_seconds = lag.max_seconds.max(lag_seconds);
        }
        let end = clock::now();
        while end.elapsed() < CATCH_UP_MAX {
            let lag_seconds = self.lag_seconds()?;
            lag.max_seconds = lag.max_seconds.max(lag_seconds);
            if lag_seconds == 0.0 {
                lag.caught_up_after = Some(end.elapsed().as_secs_f64());
                break;
            }
            lag.samples.push((start.elapsed().as_secs_f64(), lag_seconds));
            // No client sends: this waits.
            let _ = finished.recv_timeout(self.every);
            std::thread::park_timeout(self.every);
        }
        Ok(lag)
    }

    fn lag_seconds(&mut self) -> anyhow::Result<f64> {
        // The consumer first: what comes between the two questions must not make it look ahead.
        let consumer = context_csn(&mut self.consumer, &self.base)?;
        let provider = context_csn(&mut self.provider, &self.base)?;
        Ok(lag_seconds(&provider, &consumer))
    }
}

/// The seconds by which the newest change of any server id is older at the consumer.
fn lag_seconds(provider: &[Newest], consumer: &[Newest]) -> f64 {
    let each = provider.iter().map(|(sid, time, csn)| {
        let known = consumer.iter().find(|(known, _, _)| known == sid);
        match known {
            Some((_, _, known)) if known >= csn => 0.0,
            // CSNs may share a microsecond; behind is behind.
            Some((_, known, _)) => (time - known).max(1e-6),
            None => {
                let oldest = provider.iter().map(|(_, time, _)| *time).fold(f64::INFINITY, f64::min);
                (time - oldest).max(1e-6)
            }
        }
    });
    each.fold(0.0, f64::max)
}

fn context_csn(transport: &mut Transport, base: &str) -> anyhow::Result<Vec<Newest>> {
    let filter = FilterBuf::parse("(objectClass=*)").map_err(|error| anyhow::anyhow!("{error}"))?;
    let attributes = ["contextCSN"];
    let search = client::Search {
        attributes: &attributes,
        ..client::Search::new(base, Scope::Base, filter.as_filter())
    };
    let mut newest = Vec::new();
    exchange(
        transport,
        "the search for contextCSN",
        |out, id| client::search(out, id, &search, &[]),
        |response| {
            let Response::Entry(entry) = response else { return Ok(()) };
            for attribute in entry.attributes {
                for value in attribute.values {
                    let text = String::from_utf8_lossy(value);
                    let parsed = parse_csn(&text).with_context(|| format!("{text:?} is no CSN"))?;
                    newest.push(parsed);
                }
            }
            Ok(())
        },
    )?;
    Ok(newest)
}

/// Reads `20250102030405.678901Z#000000#001#000000`.
fn parse_csn(text: &str) -> Option<Newest> {
    let mut fields = text.split('#');
    let time = fields.next()?.strip_suffix('Z')?;
    let server_id = u16::from_str_radix(fields.nth(1)?, 16).ok()?;
    let (date, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let number = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let days = days_from_civil(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some((server_id, seconds as f64 + fraction, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csns() {
        for (text, expected) in [
            ("19700101000000.000000Z#000000#000#000000", Some((0, 0.0))),
            ("20000301000000.500000Z#000000#00a#000000", Some((10, 951_868_800.5))),
            ("20240229235959.000001Z#000001#001#000000", Some((1, 1_709_251_199.000_001))),
            ("20240229235959Z#000001#001#000000", Some((1, 1_709_251_199.0))),
            ("20240229", None),
            ("", None),
            ("20240229235959.000001Z#000001#xyz#000000", None),
        ] {
            let got = parse_csn(text).map(|(server_id, seconds, _)| (server_id, seconds));
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn the_worst_server_id_counts() {
        let csn = |sid: u16, second: u32| {
            parse_csn(&format!("202401010000{second:02}.000000Z#000000#{sid:03x}#000000")).unwrap()
        };
        for (provider, consumer, expected) in [
            (vec![csn(1, 10)], vec![csn(1, 10)], 0.0),
            (vec![csn(1, 10)], vec![csn(1, 7)], 3.0),
            (vec![csn(1, 10)], vec![csn(1, 12)], 0.0),
            (vec![csn(1, 10), csn(2, 20)], vec![csn(1, 9), csn(2, 12)], 8.0),
            (vec![csn(1, 10), csn(2, 20)], vec![csn(1, 10)], 10.0),
            (vec![csn(1, 10)], vec![], 1e-6),
        ] {
            assert!((lag_seconds(&provider, &consumer) - expected).abs() < 1e-9, "{provider:?} {consumer:?}");
        }
    }
}
