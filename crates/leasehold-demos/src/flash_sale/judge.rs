//! Units sold equal the stock, no buyer got two, and every order that was confirmed to a buyer exists.

use crate::{Result, database::number, verdict::Verdict, worker::Worker};

const TWICE: &str = "select count(*) from (select 1 from answers group by buyer having count(*) > 1)";

pub(super) fn judge(worker: &Worker) -> Result<Verdict> {
    let database = worker.database()?;
    let number = |sql| number(&database, sql);
    let stock = number("select sum(first_stock) from products")?;
    let mut sold_by = database.prepare("select shop, count(*) from orders group by shop order by shop")?;
    let sold_by = sold_by.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(Verdict::default()
        .reports("buyers who got an answer", number("select count(distinct buyer) from answers")?)
        .reports("of these pressed twice, and got two", number(TWICE)?)
        .expects("units sold, of the stock", stock, number("select count(*) from orders")?)
        .expects(
            "products sold more often than there were units",
            0,
            number(
                "select count(*) from products where first_stock <
                     (select count(*) from orders where product = products.id)",
            )?,
        )
        .expects(
            "buyers with two orders of one product",
            0,
            number(
                "select count(*) from (select 1 from orders group by buyer, product having count(*) > 1)",
            )?,
        )
        .expects(
            "buyers told \"ordered\" whose order is lost",
            0,
            number(
                "select count(*) from answers where answer = 'ordered' and not exists
                     (select 1 from orders where orders.buyer = answers.buyer
                      and orders.product = answers.product and status = 'CONFIRMED')",
            )?,
        )
        .damage(
            number(
                "select sum(max(0, sold - first_stock)) from
                     (select first_stock, (select count(*) from orders where product = products.id) as sold
                      from products)",
            )?,
            "units oversold",
        )
        .chart("orders taken by each instance", sold_by))
}
