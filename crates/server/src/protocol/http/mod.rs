//! The HTTP API, `/json` and forward-auth.

use std::sync::Arc;

use crate::gate::{Door, Meter};
use crate::serve::{Drained, House, Peer, Serve, Stream};

pub(crate) struct HttpService {
    house: Arc<House>,
}

impl HttpService {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { house: Arc::clone(house) }
    }
}

impl Serve for HttpService {
    async fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) {
        let _ = (stream, peer, drained);
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Http)
    }
}
