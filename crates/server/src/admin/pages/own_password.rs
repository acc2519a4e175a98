//! One's own password: whenever one likes, and before anything else where the policy demands it.

use larix_proto::extended::PasswordModify;
use larix_proto::{ResultCode, Scope};
use maud::html;

use super::account::root_password;
use super::edit::refused;
use super::layout::{self, MenuItem};
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;

/// `/password`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let mut trouble = html! {};
    if let Some(form) = visit.form {
        let (old, new) = (form.get("old"), form.get("new"));
        if new.is_empty() || new != form.get("again") {
            let why =
                if new.is_empty() { "A new password is needed." } else { "The two new passwords differ." };
            trouble = layout::alert("Not changed", html! { p { (why) } });
        } else {
            let request = PasswordModify { user: None, old: Some(old.as_bytes()), new: Some(new.as_bytes()) };
            let mut client = visit.session.client.lock().await;
            let changed = client.change_password(request).await;
            if client.is_gone() {
                return Err(Problem::LoggedOut);
            }
            match changed {
                Ok(_) => {
                    visit.session.must_change.set(false);
                    let dn = &visit.session.dn;
                    super::end_sessions(visit.admin, dn, Scope::Base, Some(visit.session));
                    visit.session.notice(NoticeKind::Done, "Your password is changed.");
                    return Ok(Reply::SeeOther("/account".to_owned()));
                }
                Err(result) => {
                    trouble = html! {
                        (refused("The password is not changed", &result))
                        @if result.code == ResultCode::NO_SUCH_OBJECT { p.help { (root_password()) } }
                    };
                }
            }
        }
    }
    let content = html! {
        (trouble)
        form method="post" action="/password" {
            (layout::csrf(visit))
            label for="old" { "Your password until now" }
            input #old type="password" name="old" required autocomplete="current-password";
            label for="new" { "The new one" }
            input #new type="password" name="new" required autocomplete="new-password";
            label for="again" { "The new one again" }
            input #again type="password" name="again" required autocomplete="new-password";
            div.actions { button.primary type="submit" { "Change my password" } }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Account, "Your password", content)))
}
