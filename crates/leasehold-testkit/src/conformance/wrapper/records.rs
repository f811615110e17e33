//! Records pass through, except for the methods of the tamper.

use leasehold::{
    Name,
    clock::Until,
    engine::{
        Cursor, Fut, Page,
        records::{Begin, Begun, MarkOp, Record, Records, Settle, Settled},
    },
};

use super::{Tamper, Wrapped};

impl<T: Tamper> Wrapped<T> {
    fn pass_record<'a, O: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Records) -> Fut<'a, O>,
    ) -> Fut<'a, O> {
        self.pass(|inner| call(inner.records().expect("checked before")))
    }
}

impl<T: Tamper> Records for Wrapped<T> {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        self.pass_record(|records| records.begin(begin, until))
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        self.pass_record(|records| self.tamper.settle(records, settle, until))
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        self.pass_record(|records| records.on_marks(keys, op, until))
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        self.pass_record(|records| records.read(key, until))
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        self.pass_record(|records| records.remove(key, until))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        self.pass_record(|records| records.scan(prefix, from, limit, until))
    }
}
