//! What a request still has to pay after it was let through, and the slots that it holds meanwhile.
//!
//! Bytes are paid for in portions as they flow, and what is left when the flow ends. Nobody waits for a payment: what
//! does not fit becomes debt, which the next request meets.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate::{Check, Micros, Part};

use super::holders;
use super::known::Kept;
use super::table::Lane;
use crate::gate::Ask;
use crate::protocol::body::Body;
use crate::serve::House;

/// Bytes that are paid for together.
const PORTION: u64 = 64 << 10;

/// Whoever pays.
pub(super) struct Account {
    pub(super) house: Arc<House>,
    pub(super) lane: Arc<Lane>,
    pub(super) known: Kept,
    /// The limits that let it through.
    pub(super) part: Part,
}

/// Slots that are held until the request is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// The name that they are held under.
    pub(super) lease: u64,
    pub(super) number: u64,
    /// How long they are held if nobody renews them.
    pub(super) length: Micros,
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Account {
    /// Pays `cost`, and for `bytes` that went some way; then gives slots back.
    fn pay(self: &Arc<Self>, cost: u64, bytes: Option<(Way, u64)>, slots: Option<Slots>) {
        let (way, bytes) = bytes.unwrap_or((Way::ToClient, 0));
        if cost == 0 && bytes == 0 && slots.is_none() {
            return;
        }
        // Without a runtime the process is about to end, and slots end by themselves.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let account = Arc::clone(self);
        runtime.spawn(async move {
            let Self { house, lane, known, part } = &*account;
            let attributes = known.attributes();
            let of_way = if way == Way::ToServer { "request_bytes" } else { "response_bytes" };
            let costs = [("bytes", bytes), (of_way, bytes)];
            // A limit on slots takes what is charged later for more of them, which go back with the others.
            let lease = slots.map_or(0, |slots| slots.lease);
            let check = Check::attributes(&lane.domain, &attributes).cost(cost).costs(&costs).lease(lease);
            // If the store cannot be asked, nobody is there to be told.
            if cost > 0 || bytes > 0 {
                // What comes of a request that was kept is for all of its limits to count.
                let concerned = if *part == Part::Later { Part::All } else { *part };
                let _ = house.gate.ask(Ask::Force, &check.part(concerned), |_| ()).await;
            }
            if let Some(slots) = slots {
                let all = slots.number.saturating_add(cost);
                let _ = house.gate.ask(Ask::Release, &check.cost(all).part(*part), |_| ()).await;
            }
        });
    }

    /// Holds slots longer. Whether that succeeded shows when they are given back: nobody could do anything about it
    /// before.
    pub(super) async fn renew(&self, slots: Slots) {
        let attributes = self.known.attributes();
        let check =
            Check::attributes(&self.lane.domain, &attributes).cost(slots.number).lease(slots.lease).part(self.part);
        let _ = self.house.gate.ask(Ask::Renew, &check, |_| ()).await;
    }
}

/// Counts bytes that go one way, and has them paid for.
struct Meter {
    account: Arc<Account>,
    way: Way,
    /// Bytes that are paid for already.
    ahead: u64,
    unpaid: u64,
}

impl Meter {
    fn add(&mut self, bytes: u64) {
        let paid = bytes.min(self.ahead);
        self.ahead -= paid;
        self.unpaid += bytes - paid;
        if self.unpaid >= PORTION {
            let unpaid = std::mem::take(&mut self.unpaid);
            self.account.pay(0, Some((self.way, unpaid)), None);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.account.pay(0, Some((self.way, self.unpaid)), None);
    }
}

/// What a request still has to pay when it is done: bytes that nobody announced, a cost that was not known before, and
/// slots to be given back.
pub(super) struct Tab {
    account: Arc<Account>,
    slots: Option<Slots>,
    cost: u64,
    to_server: Option<Box<Meter>>,
    to_client: Option<Box<Meter>>,
}

impl Tab {
    /// `ahead` bytes of either way are paid for already. Those to servers are counted unless they were `announced`,
    /// and so paid for.
    pub(super) fn new(account: Account, slots: Option<Slots>, ahead: u64, announced: bool) -> Self {
        let account = Arc::new(account);
        let meter = |way| Box::new(Meter { account: Arc::clone(&account), way, ahead, unpaid: 0 });
        let to_server = (account.lane.counts_uploads && !announced).then(|| meter(Way::ToServer));
        let to_client = account.lane.counts_bytes.then(|| meter(Way::ToClient));
        if let Some(slots) = slots {
            holders::add(&account, slots);
        }
        Self { account, slots, cost: 0, to_server, to_client }
    }

    pub(super) fn lane(&self) -> &Lane {
        &self.account.lane
    }

    /// What the answer said that the request cost, beside what it was charged.
    pub(super) fn costs(&mut self, more: u64) {
        self.cost = more;
    }

    /// So many bytes came that nobody announced.
    pub(super) fn received(&mut self, bytes: u64) {
        if let Some(meter) = &mut self.to_server {
            meter.add(bytes);
        }
    }

    /// So many bytes went to the client.
    pub(super) fn add(&mut self, bytes: u64) {
        if let Some(meter) = &mut self.to_client {
            meter.add(bytes);
        }
    }

    /// Counts what goes both ways through `stream`, whose other end is the client's.
    pub(super) fn meter<S>(tab: Option<Self>, stream: S) -> Metered<S> {
        Metered { stream, tab }
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        if let Some(slots) = self.slots {
            holders::remove(slots);
        }
        self.account.pay(self.cost, None, self.slots);
    }
}

/// The body of a request, counted on its way to a server if it is paid for as it flows.
pub(crate) struct Upload {
    body: Body,
    meter: Option<Box<Meter>>,
}

impl Upload {
    pub(super) fn new(body: Body, tab: Option<&mut Tab>) -> Self {
        let meter = tab.filter(|_| !body.is_end_stream()).and_then(|tab| tab.to_server.take());
        Self { body, meter }
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = io::Error;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(meter), Some(Ok(frame))) = (&mut self.meter, &frame) {
            meter.add(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream from a client and to it, whose bytes are paid for as they flow.
pub(super) struct Metered<S> {
    stream: S,
    tab: Option<Tab>,
}

impl<S> Metered<S> {
    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(tab), Poll::Ready(Ok(bytes))) = (&mut self.tab, &written) {
            tab.add(*bytes as u64);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        if let Some(meter) = self.tab.as_mut().and_then(|tab| tab.to_server.as_mut()) {
            meter.add(read as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
