//! The admin pages.

use std::sync::Arc;
use std::time::Duration;

use footplate_service::{Admin, AdminPage, Context, listen};

use crate::get;

#[tokio::test]
async fn the_pages_tell_life_readiness_metrics_and_configuration() {
    let context = Context::new(Duration::from_secs(60));
    let listener = listen("the admin pages", "127.0.0.1:0".parse().unwrap(), "admin.listen").await.unwrap();
    let address = listener.local_addr().unwrap();
    let Context { readiness, metrics, shutdown, .. } = context.clone();
    let latch = readiness.latch("ledger");
    latch.pending("at 3 of 10");
    let page: AdminPage = Arc::new(|| Box::pin(async { "a page of its own".to_owned() }));
    let admin = Admin { readiness, metrics, shutdown, config: "drain.grace = \"1s\"\n".to_owned() };
    tokio::spawn(admin.serve(listener, vec![("/own".to_owned(), page)]));

    assert_eq!(get(address, "/livez").await.unwrap(), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz").await.unwrap(), (503, "ledger: at 3 of 10\n".to_owned()));
    latch.ready();
    assert_eq!(get(address, "/readyz").await.unwrap().0, 200);
    let (status, text) = get(address, "/metrics").await.unwrap();
    assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(get(address, "/configz").await.unwrap().1, "drain.grace = \"1s\"\n");
    assert_eq!(get(address, "/own").await.unwrap().1, "a page of its own");
    assert_eq!(get(address, "/nothing").await.unwrap().0, 404);

    context.shutdown.request();
    assert_eq!(get(address, "/readyz").await.unwrap(), (503, "stopping\n".to_owned()));
}
