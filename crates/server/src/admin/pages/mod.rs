//! The pages: one module each. Markup is made by macros that escape every value.

pub(super) mod about;
pub(super) mod layout;
pub(super) mod login;
pub(super) mod overview;

use hyper::StatusCode;
use maud::html;

use super::reply::{Problem, Reply, Shown, explain};
use super::respond::Visit;
use layout::Place;

/// The page of a path.
pub(super) async fn route(visit: &Visit<'_>) -> Shown {
    match visit.path {
        "/" => overview::page(visit).await,
        "/api/figures" => overview::figures(visit).await,
        "/about" => about::page(visit).await,
        _ => Err(Problem::NotFound),
    }
}

/// Why there is no page, as a page.
pub(super) fn problem(visit: &Visit<'_>, problem: &Problem) -> Reply {
    let (status, title, body) = match problem {
        Problem::NotFound => {
            (StatusCode::NOT_FOUND, "Not found", html! { p { "There is no page at this address." } })
        }
        Problem::Bad(why) => (StatusCode::BAD_REQUEST, "This does not work", html! { p { (why) } }),
        Problem::LoggedOut => (StatusCode::UNAUTHORIZED, "Logged out", html! {}),
        Problem::Refused { what, result } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "The directory refused",
            html! {
                p { (what) " did not succeed. " (explain(result)) }
                (layout::result(result))
            },
        ),
    };
    if visit.path.starts_with("/api/") {
        let text = match problem {
            Problem::Refused { result, .. } => result.to_string(),
            Problem::Bad(why) => why.clone(),
            _ => title.to_owned(),
        };
        return Reply::Bytes {
            content_type: "application/json",
            file_name: None,
            bytes: serde_json::json!({ "error": text }).to_string().into_bytes(),
        };
    }
    let page = layout::page(
        visit,
        Place::None,
        title,
        html! {
            div.problem role="alert" { h2 { (title) } (body) }
            p { a href="/" { "Back to the overview" } }
        },
    );
    Reply::Page(status, page)
}
