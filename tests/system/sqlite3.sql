-- sqlite3.sql: a heavy script whose output depends on nothing but itself: tables, indices, joins, text, updates.
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL, data BLOB);
CREATE TABLE sale(id INTEGER PRIMARY KEY, item INTEGER REFERENCES item, day INTEGER, count INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO item SELECT i, printf('item %d of many, %s', i, hex(i * 7919)), (i * 37 % 1000) / 10.0,
	zeroblob(i % 300) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
INSERT INTO sale SELECT i, i * 7919 % 30000 + 1, i % 365, i % 9 FROM n;
COMMIT;
CREATE INDEX sale_item ON sale(item, day);
CREATE INDEX item_name ON item(name);
SELECT count(*), sum(count), round(sum(count * price), 1) FROM sale JOIN item ON item.id = sale.item;
SELECT day, sum(count), group_concat(name, ';') FROM
	(SELECT * FROM sale JOIN item ON item.id = item WHERE day % 50 = 0 ORDER BY sale.id LIMIT 2000)
	GROUP BY day ORDER BY day;
SELECT name, total, rank() OVER (ORDER BY total DESC, name) FROM
	(SELECT name, sum(count) AS total FROM sale JOIN item ON item.id = item GROUP BY item) ORDER BY 3 LIMIT 50;
UPDATE item SET name = upper(name) || name, data = zeroblob(length(data) * 3) WHERE id % 3 = 0;
DELETE FROM sale WHERE day BETWEEN 100 AND 200;
SELECT count(*), sum(length(name)), sum(length(data)) FROM item;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM item WHERE id < 300;
VACUUM;
PRAGMA integrity_check;
