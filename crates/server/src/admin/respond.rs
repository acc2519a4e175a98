//! From a request to its answer: checks the request, finds its session, and calls its page.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use larix_configuration::values::{PasswordReset, ResetMail};
use larix_engine::injected;
use larix_engine::time::Clock as _;
use zeroize::Zeroizing;

use super::form::Form;
use super::reply::{PageResult, Problem, Reply};
use super::sessions::{self, Session};
use super::{Admin, ClientConnection, assets, guard, pages};

/// Most bytes of a form of a user that is not logged in.
const LOGIN_MAX: usize = 16 * 1024;
/// Bytes of a form.
const BODY_MAX: usize = 4 * 1024 * 1024;
/// How long a form may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(20);
/// Changes that are carried out to their end also if their browser leaves. Others end with it.
const CHANGES_MAX: usize = 64;
/// How long a page may take.
const PAGE_PATIENCE: Duration = Duration::from_secs(120);

type Answer = Response<Full<Bytes>>;

/// A request of a logged-in user.
pub(super) struct Visit<'a> {
    pub(super) admin: &'a Admin,
    pub(super) session: &'a Rc<Session>,
    pub(super) path: &'a str,
    pub(super) query: &'a Form,
    /// Of a POST whose token was right.
    pub(super) form: Option<&'a Form>,
}

impl Visit<'_> {
    /// Whether the user may read this attribute of an entry over LDAP: who may, sees what the page takes from the server itself.
    pub(super) async fn shows(&self, dn: &str, attribute: &str) -> Result<bool, Problem> {
        let mut client = self.session.client.lock().await;
        let shows = client.shows(dn, attribute).await;
        if client.is_gone() {
            return Err(Problem::LoggedOut);
        }
        Ok(shows)
    }
}

/// Answers; what is wrong is an answer, too.
pub(super) async fn respond(
    admin: Rc<Admin>,
    connection: Rc<ClientConnection>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    injected::panic_at("admin");
    let mut response = answer(&admin, &connection, request).await;
    guard::protect(response.headers_mut(), &connection);
    Ok(response)
}

async fn answer(admin: &Rc<Admin>, connection: &ClientConnection, request: Request<Incoming>) -> Answer {
    let host = guard::host(request.headers());
    if !connection.address.answers_to(host, &admin.machine) {
        let text = format!(
            "This server does not answer to that name. Use {} or, for another name, add it to admin-listener.\n",
            connection.address
        );
        return plain(StatusCode::MISDIRECTED_REQUEST, &text);
    }
    if request.uri().path().starts_with("/assets/") {
        return asset(&request);
    }
    match *request.method() {
        Method::GET | Method::HEAD => get(admin, connection, &request).await,
        Method::POST => post(admin, connection, request).await,
        _ => {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and POST\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
            response
        }
    }
}

fn asset(request: &Request<Incoming>) -> Answer {
    let path = request.uri().path().trim_start_matches("/assets/");
    let Some(asset) = assets::find(path).filter(|_| matches!(*request.method(), Method::GET | Method::HEAD))
    else {
        return plain(StatusCode::NOT_FOUND, "no such file\n");
    };
    let mut response = Response::new(Full::new(Bytes::from_static(asset.text.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=604800, immutable"));
    response
}

async fn get(admin: &Admin, connection: &ClientConnection, request: &Request<Incoming>) -> Answer {
    let _answering = connection.place.begin();
    let query = Form::parse(request.uri().query().unwrap_or("").as_bytes());
    let path = request.uri().path();
    let session = session(admin, connection, request);
    if path == "/login" {
        return match session {
            Some(_) => Reply::SeeOther("/".to_owned()).into_response(),
            None => {
                login_page(admin, connection, StatusCode::OK, &pages::login::Attempted::at(query.get("next")))
            }
        };
    }
    if path == "/reset" && pages::reset::allowed(admin).is_some() {
        return reset_page(admin, connection, StatusCode::OK, "", None);
    }
    if path == "/reset/mail" && pages::reset_mail::mails(admin).is_some() {
        return mail_page(connection, StatusCode::OK, "", None);
    }
    let Some(session) = session else {
        if path.starts_with("/api/") {
            return plain(StatusCode::UNAUTHORIZED, "not logged in\n");
        }
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        return Reply::SeeOther(super::form::url("/login", &[("next", target)])).into_response();
    };
    if !path.starts_with("/api/") {
        session.touch(admin.server.clock.monotonic());
    }
    show(&Visit { admin, session: &session, path, query: &query, form: None }).await
}

async fn post(admin: &Rc<Admin>, connection: &ClientConnection, request: Request<Incoming>) -> Answer {
    if let Some(why) = guard::not_own_origin(request.headers(), connection) {
        return plain(StatusCode::FORBIDDEN, &why);
    }
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    if kind.split(';').next().unwrap_or("").trim() != "application/x-www-form-urlencoded" {
        return plain(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "forms are application/x-www-form-urlencoded here\n",
        );
    }
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, ());
    let session = session(admin, connection, &request);
    let most = if session.is_some() { BODY_MAX } else { LOGIN_MAX };
    let form = match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Form::parse(&Zeroizing::new(body.to_bytes().to_vec())),
        Ok(Err(_)) => {
            return plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a form has at most 4 MiB, and 16 KiB before the login\n",
            );
        }
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the form did not come in time\n"),
    };
    // Until here it was the browser that let us wait.
    let _answering = connection.place.begin();
    let path = request.uri().path();
    if path == "/login" {
        return log_in(admin, connection, &request, &form).await;
    }
    if path == "/reset" && pages::reset::allowed(admin).is_some() {
        return reset(admin, connection, &request, &form).await;
    }
    if path == "/reset/mail"
        && let Some(mails) = pages::reset_mail::mails(admin)
    {
        return mail(admin, connection, &request, &form, mails);
    }
    let Some(session) = session else {
        return Reply::SeeOther("/login".to_owned()).into_response();
    };
    if !sessions::same(form.get("csrf"), &session.csrf) {
        return plain(StatusCode::FORBIDDEN, "this form is not one of this session's: load the page again\n");
    }
    session.touch(admin.server.clock.monotonic());
    if path == "/logout" {
        return log_out(admin, connection, &request);
    }
    let query = Form::parse(request.uri().query().unwrap_or("").as_bytes());
    // With the page's own.
    let permit = (Rc::strong_count(&admin.changing) <= CHANGES_MAX).then(|| Rc::clone(&admin.changing));
    let goes_on = permit.is_some();
    let (admin, path) = (admin.clone(), path.to_owned());
    let change = async move {
        let _permit = permit;
        show(&Visit { admin: &admin, session: &session, path: &path, query: &query, form: Some(&form) }).await
    };
    if !goes_on {
        return change.await;
    }
    // A browser that leaves, as at a second click, would leave a user without the password, or half an import.
    match tokio::task::spawn_local(change).await {
        Ok(answer) => answer,
        Err(error) => {
            let text = format!("the change was cut off ({error}): look at how far it came\n");
            plain(StatusCode::INTERNAL_SERVER_ERROR, &text)
        }
    }
}

async fn show(visit: &Visit<'_>) -> Answer {
    let page_result: PageResult = match tokio::time::timeout(PAGE_PATIENCE, pages::route(visit)).await {
        Ok(page_result) => page_result,
        Err(_) => Err(Problem::Bad("the page took longer than two minutes".to_owned())),
    };
    match page_result {
        Ok(reply) => reply.into_response(),
        // Whatever was asked: the directory has ended the connection meanwhile.
        Err(_) if visit.session.client.try_lock().is_ok_and(|client| client.is_gone()) => {
            Reply::SeeOther("/login".to_owned()).into_response()
        }
        Err(Problem::LoggedOut) => Reply::SeeOther("/login".to_owned()).into_response(),
        Err(problem) => pages::problem(visit, &problem).into_response(),
    }
}

fn session<B>(admin: &Admin, connection: &ClientConnection, request: &Request<B>) -> Option<Rc<Session>> {
    let token = guard::cookie(request.headers(), &guard::cookie_name(connection, "session"))?;
    admin.sessions.borrow_mut().get(token, admin.server.clock.monotonic())
}

/// The page to log in at. Its form carries what a cookie of its own holds: a form of another site could not.
fn login_page(
    admin: &Admin,
    connection: &ClientConnection,
    status: StatusCode,
    attempted: &pages::login::Attempted<'_>,
) -> Answer {
    let token = sessions::token(&crate::clock::SystemRandom);
    let mut response = Reply::Page(status, pages::login::page(admin, &token, attempted)).into_response();
    let cookie = guard::set_cookie(connection, &guard::cookie_name(connection, "login"), &token);
    add_cookie(&mut response, cookie);
    response
}

async fn log_in(admin: &Admin, connection: &ClientConnection, request: &Request<()>, form: &Form) -> Answer {
    let expected = guard::cookie(request.headers(), &guard::cookie_name(connection, "login")).unwrap_or("");
    let mut attempted = pages::login::Attempted::at(form.get("next"));
    attempted.name = form.trimmed("name");
    if !sessions::same(form.get("csrf"), expected) {
        attempted.error = Some("This page was open for too long. Please try again.".to_owned());
        return login_page(admin, connection, StatusCode::FORBIDDEN, &attempted);
    }
    match pages::login::log_in(admin, connection, form).await {
        Ok(pages::login::LoggedIn { token, first }) => {
            let next = match attempted.next {
                "" | "/" => first,
                next => next,
            };
            let mut response = Reply::SeeOther(next.to_owned()).into_response();
            for (what, value) in [("session", token.as_str()), ("login", "")] {
                let cookie = guard::set_cookie(connection, &guard::cookie_name(connection, what), value);
                add_cookie(&mut response, cookie);
            }
            response
        }
        Err((status, error)) => {
            attempted.error = Some(error);
            login_page(admin, connection, status, &attempted)
        }
    }
}

/// The page of a forgotten password; a cookie guards its form as that of the login.
fn reset_page(
    admin: &Admin,
    connection: &ClientConnection,
    status: StatusCode,
    name: &str,
    error: Option<&str>,
) -> Answer {
    let by_mail = pages::reset_mail::mails(admin).is_some();
    guarded(connection, status, |token| pages::reset::page(token, name, error, by_mail))
}

/// The page that sends a code by mail, guarded in the same way.
fn mail_page(connection: &ClientConnection, status: StatusCode, name: &str, error: Option<&str>) -> Answer {
    guarded(connection, status, |token| pages::reset_mail::page(token, name, error))
}

fn guarded(
    connection: &ClientConnection,
    status: StatusCode,
    page: impl FnOnce(&str) -> maud::Markup,
) -> Answer {
    let token = sessions::token(&crate::clock::SystemRandom);
    let mut response = Reply::Page(status, page(&token)).into_response();
    let cookie = guard::set_cookie(connection, &guard::cookie_name(connection, "reset"), &token);
    add_cookie(&mut response, cookie);
    response
}

async fn reset(
    admin: &Rc<Admin>,
    connection: &ClientConnection,
    request: &Request<()>,
    form: &Form,
) -> Answer {
    let expected = guard::cookie(request.headers(), &guard::cookie_name(connection, "reset")).unwrap_or("");
    let name = form.trimmed("name");
    if !sessions::same(form.get("csrf"), expected) {
        let error = "This page was open for too long. Please try again.";
        return reset_page(admin, connection, StatusCode::FORBIDDEN, name, Some(error));
    }
    match pages::reset::set(admin, connection, form).await {
        Ok(()) => {
            let mut response = Reply::page(pages::reset::done()).into_response();
            let cookie = guard::set_cookie(connection, &guard::cookie_name(connection, "reset"), "");
            add_cookie(&mut response, cookie);
            response
        }
        Err((status, error)) => reset_page(admin, connection, status, name, Some(&error)),
    }
}

fn mail(
    admin: &Rc<Admin>,
    connection: &ClientConnection,
    request: &Request<()>,
    form: &Form,
    mails: (PasswordReset, ResetMail),
) -> Answer {
    let expected = guard::cookie(request.headers(), &guard::cookie_name(connection, "reset")).unwrap_or("");
    let name = form.trimmed("name");
    if !sessions::same(form.get("csrf"), expected) {
        let error = "This page was open for too long. Please try again.";
        return mail_page(connection, StatusCode::FORBIDDEN, name, Some(error));
    }
    match pages::reset_mail::ask(admin, connection, form, mails) {
        Ok(()) => Reply::page(pages::reset_mail::confirmation()).into_response(),
        Err((status, error)) => mail_page(connection, status, name, Some(&error)),
    }
}

fn log_out(admin: &Admin, connection: &ClientConnection, request: &Request<()>) -> Answer {
    let name = guard::cookie_name(connection, "session");
    if let Some(token) = guard::cookie(request.headers(), &name) {
        admin.sessions.borrow_mut().remove(token);
    }
    let mut response = Reply::SeeOther("/login".to_owned()).into_response();
    let cookie = guard::set_cookie(connection, &name, "");
    add_cookie(&mut response, cookie);
    response
}

fn add_cookie(response: &mut Answer, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

fn plain(status: StatusCode, text: &str) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
