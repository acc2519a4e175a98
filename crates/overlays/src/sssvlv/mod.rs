//! `overlay sssvlv`: sorting and views are part of every search; what is left to say is how many keys a sort may have.

use std::sync::Arc;

use larix_engine::budget::{RequestLimit, RequestLimits};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    BuildContext, Descriptor, InGluedDatabases, Interests, Overlay, OverlayDirective, WordFault,
};
use larix_schema::Schema;

pub static DESCRIPTOR: Descriptor = Descriptor::new("sssvlv", "olcSssVlvConfig", build)
    .over_glue(InGluedDatabases::TakenIn)
    .once()
    .noted("server-side sorting and virtual list views are built in, with limits of their own")
    .directives(&[
        OverlayDirective::whole("sssvlv-max", "olcSssVlvMax").checked(check_number),
        OverlayDirective::whole("sssvlv-maxkeys", "olcSssVlvMaxKeys").checked(check_number),
        OverlayDirective::whole("sssvlv-maxperconn", "olcSssVlvMaxPerConn").checked(check_number),
    ]);

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct Sorting {
    keys_max: Option<u32>,
}

impl Overlay for Sorting {
    fn name(&self) -> &'static str {
        "sssvlv"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }

    fn request_limits(&self, limits: RequestLimits) -> RequestLimits {
        match self.keys_max {
            Some(most) => limits.with(RequestLimit::SortKeys, most.into()),
            None => limits,
        }
    }
}

fn check_number(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    match words.first() {
        Some(word) if word.trim().parse::<i32>().is_err() => {
            Err(WordFault::new(0, format!("`{word}` is not a number")))
        }
        _ => Ok(()),
    }
}

fn build(settings: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let keys_max = settings.number::<i32>("sssvlv-maxkeys", "olcSssVlvMaxKeys")?;
    // As in slapd: below 0 there are no fewer than none.
    let keys_max = keys_max.map(|most| u32::try_from(most).unwrap_or(0));
    Ok(Arc::new(Sorting { keys_max }))
}
