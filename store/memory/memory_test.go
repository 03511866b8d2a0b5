package memory_test

import (
	"testing"

	"writ/store"
	"writ/store/memory"
	"writ/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, func() store.Store) { return memory.Open(), nil })
}
