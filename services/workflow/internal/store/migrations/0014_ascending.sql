-- +goose Up

-- The newest come first when this is read from its end as well. But new rows are at the end of an index in ascending order, whose
-- pages they fill one after the other; at the beginning of a descending one each full page is cut in half and stays so: twice the
-- size, and a page written to the log for every half of one.
CREATE INDEX execution_by_age ON execution (organization, id);
DROP INDEX execution_newest;

-- +goose Down
CREATE INDEX execution_newest ON execution (organization, id DESC);
DROP INDEX execution_by_age;
