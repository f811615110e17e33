//! SQLite: a file that all processes of the run share. It is not where the locks are, so rows have fences.

use rusqlite::{
    Connection, params_from_iter,
    types::{ToSql, ToSqlOutput, ValueRef},
};

use super::{Row, Session, Statements, Value};
use crate::{Result, protection::Held};

impl Statements for Connection {
    fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        let mut statement = self.prepare_cached(sql)?;
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let values = (0..columns).map(|column| {
                Ok(match row.get_ref(column)? {
                    ValueRef::Integer(number) => Value::Number(number),
                    ValueRef::Null => Value::Nothing,
                    _ => Value::Text(row.get(column)?),
                })
            });
            Ok(Row(values.collect::<rusqlite::Result<_>>()?))
        };
        Ok(statement.query_map(params_from_iter(values), row)?.collect::<Result<_, _>>()?)
    }

    fn execute(&self, sql: &str, values: &[Value]) -> Result<u64> {
        Ok(self.prepare_cached(sql)?.execute(params_from_iter(values))? as u64)
    }

    fn open(&self, table: &str, columns: &str, id: u64, held: &Held) -> Result<Option<Row>> {
        let sql = format!("update {table} set fence = ?2 where id = ?1 and fence <= ?2 returning {columns}");
        self.row(&sql, &[id.into(), held.fence.into()])
    }
}

impl Session for Connection {
    fn script(&self, sql: &str) -> Result<()> {
        Ok(self.execute_batch(sql)?)
    }

    fn begin(&self, _: &[&Held]) -> String {
        "begin immediate".into()
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Nothing => rusqlite::types::Null.into(),
        })
    }
}
