"""The PostgreSQL of the service's tests, for the dumps of older versions."""

from tests.service.conftest import empty_databases, new_postgres, postgres

__all__ = ["empty_databases", "new_postgres", "postgres"]
