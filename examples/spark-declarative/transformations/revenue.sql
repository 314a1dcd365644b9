create materialized view revenue as
select customer, count(*) as orders, sum(price) as revenue from orders group by customer;
