//! All domains, served by one process that records when each request began and ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header::USER_AGENT},
    response::Html,
    routing::get,
};
use rusqlite::Connection;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

use super::PAGES;
use crate::{Result, worker::Worker};

struct Site {
    pages: u64,
    opened: Instant,
    book: UnboundedSender<Request>,
}

/// A request that is over.
struct Request {
    domain: String,
    page: u64,
    crawler: String,
    served: bool,
    began_us: u64,
    ended_us: u64,
}

/// A request that is being served. It ends when it is dropped, also when the client was killed.
struct Serving<'a> {
    site: &'a Site,
    domain: String,
    page: u64,
    crawler: String,
    served: bool,
    began_us: u64,
}

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let (book, mut requests) = unbounded_channel();
    let site = Arc::new(Site { pages: worker.options.scaled(PAGES), opened: Instant::now(), book });
    let routes = Router::new().route("/{domain}/{page}", get(page)).with_state(site);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut database = worker.database()?;
    database.execute("insert into site (port) values (?)", [listener.local_addr()?.port()])?;
    let served = tokio::spawn(axum::serve(listener, routes).into_future());
    let mut some = Vec::new();
    while requests.recv_many(&mut some, 256).await > 0 {
        write_down(&mut database, &some)?;
        some.clear();
    }
    Ok(served.await??)
}

async fn page(
    State(site): State<Arc<Site>>,
    Path((domain, page)): Path<(String, u64)>,
    headers: HeaderMap,
) -> (StatusCode, Html<String>) {
    let crawler = headers.get(USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or("unknown").to_owned();
    let began_us = site.time_us();
    let mut serving = Serving { site: &site, domain, page, crawler, served: false, began_us };
    // How long a page takes to make.
    tokio::time::sleep(Duration::from_millis(2 + page % 5)).await;
    serving.served = page < site.pages;
    if serving.served {
        (StatusCode::OK, Html(site.html(&serving.domain, page)))
    } else {
        (StatusCode::NOT_FOUND, Html("no such page".into()))
    }
}

impl Site {
    fn time_us(&self) -> u64 {
        self.opened.elapsed().as_micros() as u64
    }

    /// A page with links to two more, and back to the first.
    fn html(&self, domain: &str, page: u64) -> String {
        let links = [2 * page + 1, 2 * page + 2, 0].into_iter().filter(|page| *page < self.pages);
        let links: Vec<_> = links.map(|to| format!("<a href=\"/{domain}/{to}\">page {to}</a>")).collect();
        format!("<h1>Page {page} of {domain}</h1>\n{}\n", links.join("\n"))
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let _closing = self.site.book.send(Request {
            domain: std::mem::take(&mut self.domain),
            page: self.page,
            crawler: std::mem::take(&mut self.crawler),
            served: self.served,
            began_us: self.began_us,
            ended_us: self.site.time_us(),
        });
    }
}

fn write_down(database: &mut Connection, some: &[Request]) -> Result<()> {
    let change = database.transaction()?;
    for Request { domain, page, crawler, served, began_us, ended_us } in some {
        let sql = "insert into requests (domain, page, crawler, served, began_us, ended_us)
                   values (?, ?, ?, ?, ?, ?)";
        change.execute(sql, (domain, page, crawler, served, began_us, ended_us))?;
    }
    Ok(change.commit()?)
}
