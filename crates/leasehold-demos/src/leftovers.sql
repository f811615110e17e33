-- Removes the rows of one run from a lease file that others use too. RUN is its prefix.
BEGIN IMMEDIATE;
DELETE FROM waiter WHERE instr(name, 'RUN') > 0;
DELETE FROM lock WHERE instr(name, 'RUN') > 0;
DELETE FROM watcher WHERE instr(key, 'RUN') > 0;
DELETE FROM record WHERE instr(key, 'RUN') > 0;
DELETE FROM deadline WHERE pool IN (SELECT place FROM pool WHERE instr(name, 'RUN') > 0);
DELETE FROM dead WHERE pool IN (SELECT place FROM pool WHERE instr(name, 'RUN') > 0);
DELETE FROM pool WHERE instr(name, 'RUN') > 0;
COMMIT;
