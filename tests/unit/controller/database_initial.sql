-- SPDX-License-Identifier: GPL-2.0-or-later
-- A database of version 'initial' with one domain, as the sluiced of that version made it.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('initial');
CREATE TABLE assignments (
    domain_id INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_time_ticks INTEGER NOT NULL,
    class_name VARCHAR NOT NULL,
    created_at DOUBLE NOT NULL,
    boot_id VARCHAR NOT NULL,
    PRIMARY KEY (domain_id, pid),
    FOREIGN KEY(domain_id) REFERENCES domains (id),
    FOREIGN KEY(class_name) REFERENCES classes (name)
);
CREATE TABLE audit (
    id INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    actor VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    thing VARCHAR NOT NULL,
    change JSON NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE classes (
    name VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    priority INTEGER NOT NULL,
    is_stream BOOLEAN NOT NULL,
    colour_index INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    unmanaged BOOLEAN NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE decisions (
    id INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    entry JSON NOT NULL,
    ran_s DOUBLE NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE domains (
    id INTEGER NOT NULL,
    uuid VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    ceiling JSON NOT NULL,
    stored_xml JSON,
    PRIMARY KEY (id),
    UNIQUE (uuid),
    UNIQUE (name)
);
CREATE TABLE grants (
    domain_id INTEGER NOT NULL,
    class_name VARCHAR NOT NULL,
    tag INTEGER NOT NULL,
    dscp JSON NOT NULL,
    limits JSON NOT NULL,
    scheduling JSON NOT NULL,
    queues JSON NOT NULL,
    PRIMARY KEY (domain_id, class_name),
    UNIQUE (domain_id, tag),
    FOREIGN KEY(domain_id) REFERENCES domains (id),
    FOREIGN KEY(class_name) REFERENCES classes (name)
);
CREATE TABLE group_members (
    group_name VARCHAR NOT NULL,
    domain_id INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    PRIMARY KEY (group_name, domain_id),
    FOREIGN KEY(group_name) REFERENCES groups (name),
    FOREIGN KEY(domain_id) REFERENCES domains (id)
);
CREATE TABLE groups (
    name VARCHAR NOT NULL,
    resource VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    rate BIGINT NOT NULL,
    burst BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE history (
    id INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    domain VARCHAR NOT NULL,
    samples JSON NOT NULL,
    ran_s DOUBLE NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE nightly (
    id INTEGER NOT NULL,
    run_id VARCHAR NOT NULL,
    started_at DOUBLE NOT NULL,
    summary JSON NOT NULL,
    result JSON NOT NULL,
    page TEXT,
    PRIMARY KEY (id),
    UNIQUE (run_id)
);
CREATE TABLE rules (
    id INTEGER NOT NULL,
    domain_id INTEGER,
    class_name VARCHAR NOT NULL,
    "match" JSON NOT NULL,
    created_at DOUBLE NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(domain_id) REFERENCES domains (id),
    FOREIGN KEY(class_name) REFERENCES classes (name)
);
CREATE TABLE stream_reports (
    id INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    stream VARCHAR NOT NULL,
    report JSON NOT NULL,
    ran_s DOUBLE NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE streams (
    name VARCHAR NOT NULL,
    domain_id INTEGER NOT NULL,
    class_name VARCHAR NOT NULL,
    nominal_bytes_per_second DOUBLE NOT NULL,
    PRIMARY KEY (name),
    FOREIGN KEY(domain_id) REFERENCES domains (id),
    FOREIGN KEY(class_name) REFERENCES classes (name)
);
CREATE TABLE "values" (
    "key" VARCHAR NOT NULL,
    value JSON NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX ix_history_ran_s ON history (ran_s);
CREATE INDEX history_domain_at ON history (domain, at);
CREATE INDEX stream_reports_stream_at ON stream_reports (stream, at);
CREATE INDEX ix_stream_reports_ran_s ON stream_reports (ran_s);
CREATE INDEX ix_decisions_at ON decisions (at);
CREATE INDEX ix_decisions_ran_s ON decisions (ran_s);
CREATE INDEX ix_nightly_started_at ON nightly (started_at);
INSERT INTO "domains" VALUES(1,'6f8b0f4e-4a5e-4f6a-9a51-2f2d7c1f0a11','media','{}',NULL);
COMMIT;
