//! An HTTP handler that pays once, however often the client asks. `cargo run --example idempotent_axum`
//!
//! The crate leasehold-tower does this for whole services, by the header `Idempotency-Key`.
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use leasehold::{Leasehold, idempotency::Idempotent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn pay(
    State(leases): State<Leasehold>,
    Path((order, cents)): Path<(u32, u32)>,
) -> (StatusCode, String) {
    let payout = leases.idempotency("payout").key(order).fingerprint(&cents);
    // Renewed while it runs. The fence goes to whatever the payment writes to.
    let paid = payout.run(async |lease| Ok::<_, String>(format!("receipt {}", lease.fence())));
    match paid.await {
        Ok(Idempotent::Executed(receipt) | Idempotent::Replayed(receipt)) => (StatusCode::OK, receipt),
        Ok(Idempotent::InProgress { .. }) => (StatusCode::CONFLICT, "in progress, ask again".into()),
        Ok(Idempotent::Mismatch) => (StatusCode::UNPROCESSABLE_ENTITY, "another amount before".into()),
        Ok(other) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{other:?}")),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

async fn ask(port: u16, path: &str) -> std::io::Result<String> {
    let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    connection.write_all(format!("POST {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leases = Leasehold::connect("memory:").await?;
    let routes = Router::new().route("/pay/{order}/{cents}", post(pay)).with_state(leases.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });

    let body = |answer: &str| answer.rsplit("\r\n").next().map(str::to_owned);
    let (first, again) = (ask(port, "/pay/7/100").await?, ask(port, "/pay/7/100").await?);
    assert!(first.contains(" 200 OK"), "{first}");
    assert_eq!(body(&first), body(&again), "the same receipt");
    assert!(ask(port, "/pay/7/999").await?.contains(" 422 "));
    server.abort();
    Ok(leases.close().await?)
}
