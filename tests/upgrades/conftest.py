"""The PostgreSQL of the service's tests, for the dumps of older versions."""

from tests.service.conftest import new_postgres, postgres

__all__ = ["new_postgres", "postgres"]
