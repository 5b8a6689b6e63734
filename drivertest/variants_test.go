package drivertest

import "github.com/holdfast-go/holdfast/driver"

// A variant is a broken store and the cases that fail because of it, all of
// these and no others. Only those that may fail depend on who comes first.
type variant struct {
	bug    bug
	claims driver.Guarantees // everything, unless given
	fails  string
	may    string
}

var variants = []variant{
	{bug: separateWorlds, fails: `
		tokens/several faults/silence-is-not-held tokens/floor-too-far acquire/two-processes acquire/refusal-record
		acquire/refusal-secret acquire/refusal-harmless acquire/refusal-does-not-prolong renew/other-process
		expiry/not-early expiry/store-clock tokens/rise-over-release tokens/floor-lasts keep/taken keep/shorter-than-TTL
		keep/longer-than-TTL detached/handed-over detached/outlives-store detached/outlives-process
		detached/outlives-renewer detached/expires lookup/held-name metadata/round-trip metadata/largest
		metadata/of-this-hold metadata/lasts list/held-names break/held-name names/odd concurrency/exclusion
		concurrency/one-winner concurrency/one-heir faults/restart faults/crash faults/acquire-reply-lost
		faults/keep-reply-lost break/token renew/token queue/in-order queue/own-notices queue/no-overtaking
		queue/exclusion queue/first queue/granted-at-once queue/end-of-a-place queue/expired-places queue/dead-waiters
		queue/expired-hold queue/repetition queue/renew-after-admission queue/release queue/keep queue/break
		queue/request queue/waiting queue/secret queue/crash claims/broken claims/kept claims/place
		notices/other-process notices/first-grant notices/every-waiter notices/none-lost
		notices/lost faults/queue-reply-lost faults/notices-severed faults/place-severed
	`},
	{bug: restartKeepsHolds, claims: restartFrees, fails: `faults/restart`},
	{bug: restartForgets, fails: `faults/restart`},
	{bug: restartBreaksWorld, fails: `tokens/rise-over-restart faults/restart faults/restart-usable queue/restart`},
	{bug: tokensFallAtRestart, fails: `
		tokens/several-ahead tokens/floor-too-far tokens/floor-of-a-refusal tokens/rise-over-restart renew/token
		queue/floor-too-far
	`},
	{bug: crashFreesAtOnce, fails: `faults/crash`},
	{bug: crashFreesEverything, fails: `
		detached/outlives-process detached/outlives-renewer faults/crash faults/crash-of-others queue/crash
	`},
	{bug: crashFreesNothing, claims: crashFrees, fails: `faults/crash`},
	{bug: severedStoreIsDead, fails: `faults/severed faults/place-severed`},
	{bug: closeDoesNothing, fails: `closing/later-calls`},
	{bug: ignoresContexts, fails: `contexts/ended-before`},
	{bug: closedCallsHang, fails: `closing/later-calls closing/under-way`},
	{bug: callsOutlastDeadlines, fails: `faults/silence`},
	{bug: listOutlastsDeadlines, fails: `faults/silence`},
	{bug: saysNotApplied, fails: `
		faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost faults/keep-reply-lost
		faults/queue-reply-lost
	`},
	{bug: clientClock, fails: `expiry/store-clock`},
	{bug: neverExpires, fails: `
		tokens/several acquire/refusal-does-not-prolong acquire/repetition-after-expiry renew/ends renew/after-expiry
		renew/late-with-successor renew/not-the-owner renew/batch-in-order renew/batch-each-its-ttl release/after-expiry
		release/late-with-successor expiry/not-early expiry/not-late expiry/each-its-own expiry/no-memory-of-the-last
		expiry/store-clock tokens/rise-over-expiry tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL
		keep/no-renewal keep/repeated-too-late keep/after-expiry keep/record-ends keep/tokens-rise detached/expires
		lookup/after-expiry lookup/harmless list/gone-names break/free-name concurrency/one-heir
		concurrency/guarded-resource faults/crash break/token-of-free-name renew/token queue/granted-at-once
		queue/end-of-a-place queue/dead-waiters queue/expired-hold queue/keep queue/crash queue/restart claims/nothing
		claims/kept
	`},
	{bug: foldsCase, fails: `list/held-names names/odd names/odd-release names/odd-records names/case`},
	{bug: truncatesNames, fails: `names/odd names/odd-release names/odd-records names/long`},
	{bug: hashesNames, fails: `list/held-names list/literal-prefix list/many names/many`},
	{bug: trimsNames, fails: `names/odd names/odd-release names/odd-records names/beginnings`},
	{bug: comparesPrefix, fails: `acquire/owner-compared-whole renew/not-the-owner release/not-the-owner keep/not-the-owner`},
	{bug: comparesFolded, fails: `acquire/owner-compared-whole renew/not-the-owner release/not-the-owner keep/not-the-owner`},
	{bug: expiresEarly, fails: `
		expiry/not-early keep/shorter-than-TTL keep/longer-than-TTL detached/expires faults/crash renew/token
		queue/granted-at-once queue/keep claims/kept
	`},
	{bug: expiresLate, fails: `
		tokens/several acquire/refusal-remaining acquire/refusal-record acquire/refusal-does-not-prolong
		acquire/repetition-after-expiry renew/ends renew/after-expiry renew/late-with-successor renew/not-the-owner
		renew/batch-in-order renew/batch-each-its-ttl release/after-expiry release/late-with-successor expiry/not-early
		expiry/not-late expiry/longest expiry/each-its-own expiry/no-memory-of-the-last expiry/store-clock
		tokens/rise-over-expiry tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal
		keep/repeated-too-late keep/after-expiry keep/refusal keep/record keep/record-ends keep/tokens-rise
		detached/expires lookup/held-name lookup/times lookup/after-expiry lookup/after-renewal lookup/harmless
		list/held-names list/gone-names break/held-name break/free-name concurrency/one-heir
		concurrency/guarded-resource faults/crash break/token break/token-of-free-name renew/token queue/first
		queue/granted-at-once queue/expired-hold queue/keep queue/break claims/nothing claims/kept
	`},
	{bug: coarseEndsEarly, claims: coarse, fails: `
		renew/token expiry/not-early keep/shorter-than-TTL keep/longer-than-TTL detached/expires queue/keep claims/kept
		faults/crash
	`},
	{bug: expiresLate, claims: coarse, fails: `
		acquire/refusal-remaining acquire/refusal-record acquire/refusal-does-not-prolong
		acquire/repetition-after-expiry renew/ends renew/token renew/after-expiry renew/late-with-successor
		renew/not-the-owner renew/batch-in-order renew/batch-each-its-ttl release/after-expiry
		release/late-with-successor expiry/not-early expiry/not-late expiry/longest expiry/each-its-own
		expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-expiry tokens/floor-lasts tokens/several
		keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal keep/repeated-too-late keep/after-expiry keep/refusal
		keep/record keep/record-ends keep/tokens-rise detached/expires lookup/held-name lookup/times lookup/after-expiry
		lookup/after-renewal lookup/harmless list/held-names list/gone-names break/held-name break/free-name break/token
		break/token-of-free-name queue/first queue/granted-at-once queue/expired-hold queue/keep queue/break
		claims/nothing claims/kept concurrency/one-heir concurrency/guarded-resource faults/crash
	`},
	{bug: roundsToSeconds, fails: `
		tokens/several acquire/refusal-remaining acquire/repetition-after-expiry renew/ends renew/after-expiry
		renew/late-with-successor renew/batch-in-order release/after-expiry release/late-with-successor expiry/not-early
		expiry/not-late expiry/each-its-own expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-expiry
		tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal keep/repeated-too-late
		keep/after-expiry keep/record-ends keep/tokens-rise detached/expires lookup/after-expiry list/gone-names
		break/free-name concurrency/one-heir concurrency/guarded-resource break/token-of-free-name claims/nothing
	`},
	{bug: underclaimsRemaining, fails: `
		acquire/refusal-remaining acquire/refusal-record expiry/longest keep/refusal keep/record lookup/held-name
		lookup/after-renewal list/held-names break/held-name break/token queue/first queue/end-of-a-place queue/keep
		queue/break queue/request
	`},
	{bug: endedCallsApply, fails: `contexts/ended-acquire contexts/ended-release contexts/cancel-storm`},
	{bug: lostMeansAnswered, fails: `faults/acquire-request-lost faults/release-request-lost`},
	{bug: changesMetadata, fails: `acquire/refusal-record acquire/request-unchanged metadata/of-this-hold queue/request`},
	{bug: grantsNothing, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		renew/batch-extremes release/after-extension faults/busy faults/silence-is-not-held tokens/floor-too-far
		guarantees/stable acquire/free-name acquire/held-name acquire/two-processes acquire/refusal-remaining
		acquire/refusal-record acquire/refusal-secret acquire/refusal-harmless acquire/refusal-does-not-prolong
		acquire/names-apart acquire/repetition acquire/repetition-prolongs acquire/repetition-never-shortens
		acquire/repetition-after-release acquire/repetition-after-expiry acquire/owner-compared-whole acquire/no-owner
		acquire/request-unchanged renew/prolongs renew/never-shortens renew/ends renew/keeps-token renew/other-process
		renew/free-name renew/after-release renew/after-expiry renew/late-with-successor renew/not-the-owner
		renew/batch-in-order renew/batch-each-its-ttl renew/batch-duplicates renew/batch-large release/frees
		release/second release/free-name release/not-the-owner release/no-owner release/after-expiry
		release/late-with-successor release/second-with-successor release/one-name-only release/in-order release/many
		expiry/not-early expiry/not-late expiry/longest expiry/each-its-own expiry/no-memory-of-the-last
		expiry/store-clock tokens/range tokens/rise-over-release tokens/rise-over-expiry tokens/rise-over-break
		tokens/rise-over-reopening tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal
		tokens/floor-of-a-repetition tokens/rise-over-restart keep/taken keep/shorter-than-TTL keep/longer-than-TTL
		keep/no-renewal keep/repeated keep/repeated-too-late keep/not-the-owner keep/not-a-stranger keep/after-expiry
		keep/refusal keep/record keep/record-ends keep/tokens-rise detached/handed-over detached/outlives-store
		detached/outlives-process detached/outlives-renewer detached/expires lookup/free-name lookup/held-name
		lookup/times lookup/after-expiry lookup/after-renewal lookup/secret lookup/harmless metadata/round-trip
		metadata/largest metadata/of-this-hold metadata/lasts list/held-names list/everything list/gone-names
		list/kept-names list/literal-prefix list/many list/broken-off list/calls-meanwhile list/secret break/held-name
		break/free-name break/kept-name break/victim break/victim-with-successor break/one-name-only break/secret
		names/odd names/odd-release names/odd-records names/case names/long names/beginnings names/many
		contexts/ended-before contexts/ended-acquire contexts/ended-release contexts/cancel-storm contexts/secret
		concurrency/exclusion concurrency/one-winner concurrency/one-heir concurrency/repetitions
		concurrency/renew-and-release concurrency/guarded-resource closing/twice closing/other-stores closing/anew
		faults/restart faults/restart-usable faults/crash faults/crash-of-others faults/acquire-request-lost
		faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost faults/release-request-lost
		faults/keep-reply-lost faults/secret faults/silence faults/severed strangers/acquire strangers/list break/token
		break/other-token break/token-of-free-name renew/token queue/in-order queue/notified-once queue/own-notices
		queue/no-overtaking queue/exclusion queue/racing-release queue/first queue/granted-at-once queue/end-of-a-place
		queue/expired-places queue/dead-waiters queue/expired-hold queue/attempt-without-queue queue/repetition
		queue/renew queue/renew-after-admission queue/release queue/release-with-keep queue/keep queue/break
		queue/request queue/floor-too-far queue/several queue/waiting queue/secret queue/crash queue/restart
		claims/nothing claims/broken claims/kept claims/hold claims/place
		shared/unclaimed faults/queue-reply-lost
		faults/place-severed notices/lost
	`},
	{bug: checksThenSets, fails: `
		concurrency/exclusion concurrency/one-winner concurrency/one-heir concurrency/repetitions queue/exclusion
		notices/first-grant
	`, may: `contexts/cancel-storm`},
	{bug: keepLetsOwnerTake, fails: `keep/taken claims/kept`},
	{bug: forgetsRepetitions, fails: `
		tokens/several-of-a-repetition acquire/repetition acquire/repetition-prolongs acquire/repetition-never-shortens
		tokens/floor-of-a-repetition detached/outlives-process concurrency/repetitions faults/acquire-reply-lost
		queue/notified-once queue/expired-hold queue/renew-after-admission queue/keep queue/several queue/crash
		claims/hold faults/queue-reply-lost faults/place-severed
	`},
	{bug: nobodyIsEverybody, fails: `acquire/no-owner release/no-owner`},
	{bug: dropsMetadata, fails: `metadata/round-trip metadata/largest metadata/of-this-hold metadata/lasts queue/request`},
	{bug: keepsMetadataUnclaimed, claims: without(metadata), fails: `metadata/unclaimed`},
	{bug: inheritsMetadata, fails: `metadata/of-this-hold`},
	{bug: inheritsExpiry, fails: `
		tokens/several expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock
		tokens/floor-lasts concurrency/guarded-resource claims/nothing
	`},
	{bug: repetitionDoesNotProlong, fails: `acquire/repetition-prolongs claims/hold`},
	{bug: repetitionShortens, fails: `acquire/repetition-never-shortens queue/renew-after-admission claims/hold`},
	{bug: repetitionChangesToken, fails: `
		tokens/several-of-a-repetition acquire/repetition tokens/floor-of-a-repetition concurrency/repetitions
		queue/notified-once queue/several claims/hold
	`},
	{bug: repetitionTakesFloor, fails: `tokens/floor-of-a-repetition`},
	{bug: tokensUnclaimed, claims: without(fencing), fails: `tokens/none`},
	{bug: overclaimsFencing, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		tokens/floor-too-far acquire/repetition-after-release acquire/repetition-after-expiry tokens/range
		tokens/rise-over-release tokens/rise-over-expiry tokens/rise-over-break tokens/rise-over-reopening tokens/floor
		tokens/floor-lasts tokens/floor-below tokens/rise-over-restart keep/tokens-rise concurrency/exclusion
		concurrency/guarded-resource break/other-token queue/in-order queue/exclusion queue/renew-after-admission
		queue/request queue/floor-too-far queue/several
	`},
	{bug: ignoresFloor, fails: `tokens/several-ahead tokens/floor queue/request`},
	{bug: forgetsFloor, fails: `tokens/several-ahead tokens/floor-lasts tokens/floor-below`},
	{bug: takesAnyFloor, fails: `tokens/floor-too-far`},
	{bug: refusedFloorTakes, fails: `tokens/floor-too-far`},
	{bug: refusedFloorRaisesToken, fails: `tokens/floor-too-far`},
	{bug: refusesEveryFloor, fails: `tokens/several-ahead tokens/floor tokens/floor-lasts tokens/floor-below`},
	{bug: refusesFloorOfRepetition, fails: `tokens/floor-of-a-repetition`},
	{bug: tokensFallAtExpiry, fails: `
		tokens/several acquire/repetition-after-expiry tokens/rise-over-expiry tokens/floor-lasts keep/tokens-rise
		concurrency/guarded-resource
	`},
	{bug: tokensFallAtRelease, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/floor-too-far
		acquire/repetition-after-release tokens/rise-over-release tokens/rise-over-break tokens/rise-over-reopening
		tokens/floor-lasts tokens/floor-below tokens/rise-over-restart concurrency/exclusion
		concurrency/guarded-resource queue/in-order queue/exclusion queue/renew-after-admission queue/several
	`},
	{bug: tokensTooLarge, fails: `
		tokens/several-ahead tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-too-far tokens/range
		tokens/floor-of-a-refusal strangers/list queue/request queue/floor-too-far
	`},
	{bug: tokensPerStore, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		tokens/floor-too-far tokens/rise-over-release tokens/rise-over-expiry tokens/rise-over-reopening
		tokens/floor-lasts tokens/floor-below tokens/rise-over-restart concurrency/exclusion
		concurrency/guarded-resource break/other-token renew/token queue/in-order queue/renew-after-admission
		queue/floor-too-far queue/several
	`},
	{bug: tokensTooMany, fails: `
		tokens/several-of-a-repetition tokens/several-ahead tokens/several renew/token queue/several claims/hold
	`},
	{bug: tokensNotReserved, fails: `tokens/several tokens/several-over-break tokens/several-of-a-repetition queue/several`},
	{bug: tokensOfRepetition, fails: `tokens/several-of-a-repetition queue/notified-once queue/several claims/hold`},
	{bug: tokensRunAhead, fails: `tokens/several-ahead`},
	{bug: refusalProlongs, fails: `
		acquire/refusal-remaining acquire/refusal-record acquire/refusal-does-not-prolong expiry/not-early
		expiry/longest keep/shorter-than-TTL keep/longer-than-TTL keep/refusal detached/expires lookup/harmless
		faults/crash renew/token queue/first queue/granted-at-once queue/end-of-a-place queue/dead-waiters
		queue/expired-hold queue/keep queue/break queue/crash queue/restart claims/kept
	`},
	{bug: refusalRaisesToken, fails: `tokens/floor-of-a-refusal queue/floor-too-far`},
	{bug: refusalTakesOver, fails: `
		faults/busy acquire/two-processes acquire/refusal-harmless acquire/names-apart acquire/repetition-after-release
		acquire/repetition-after-expiry renew/late-with-successor release/not-the-owner release/no-owner
		release/late-with-successor release/second-with-successor release/one-name-only expiry/not-early expiry/longest
		expiry/each-its-own expiry/store-clock tokens/floor-of-a-refusal keep/repeated-too-late keep/not-the-owner
		detached/handed-over detached/outlives-store detached/outlives-process detached/outlives-renewer
		detached/expires break/victim-with-successor break/one-name-only names/odd-release concurrency/exclusion
		closing/other-stores faults/restart faults/crash faults/crash-of-others faults/acquire-reply-lost
		faults/renew-reply-lost faults/release-reply-lost faults/severed break/other-token renew/token queue/in-order
		queue/notified-once queue/own-notices queue/no-overtaking queue/exclusion queue/racing-release queue/first
		queue/granted-at-once queue/end-of-a-place queue/expired-places queue/dead-waiters queue/expired-hold
		queue/attempt-without-queue queue/repetition queue/renew queue/renew-after-admission queue/release
		queue/release-with-keep queue/keep queue/break queue/request queue/floor-too-far queue/several queue/waiting
		queue/crash queue/restart claims/nothing claims/hold claims/place notices/release notices/keep
		notices/other-process notices/first-grant notices/every-waiter notices/none-lost notices/racing-release
		notices/again notices/prolonged notices/ends notices/given-up notices/many
		 notices/every-listener faults/queue-reply-lost faults/notices-severed faults/place-severed
	`, may: `contexts/cancel-storm`},
	{bug: busyIsAnError, fails: `
		renew/batch-extremes faults/busy faults/silence-is-not-held acquire/held-name acquire/two-processes
		acquire/refusal-remaining acquire/refusal-record acquire/refusal-secret acquire/refusal-harmless
		acquire/refusal-does-not-prolong acquire/names-apart acquire/repetition acquire/repetition-prolongs
		acquire/repetition-never-shortens acquire/repetition-after-release acquire/repetition-after-expiry
		acquire/owner-compared-whole acquire/no-owner renew/prolongs renew/never-shortens renew/late-with-successor
		renew/batch-each-its-ttl renew/batch-duplicates release/not-the-owner release/no-owner
		release/late-with-successor release/second-with-successor release/one-name-only expiry/not-early expiry/longest
		expiry/each-its-own expiry/no-memory-of-the-last expiry/store-clock tokens/floor-of-a-refusal keep/taken
		keep/shorter-than-TTL keep/longer-than-TTL keep/repeated keep/repeated-too-late keep/not-the-owner
		keep/not-a-stranger keep/refusal detached/handed-over detached/outlives-store detached/outlives-process
		detached/outlives-renewer detached/expires lookup/harmless metadata/lasts list/calls-meanwhile
		break/victim-with-successor break/one-name-only names/odd names/odd-release concurrency/exclusion
		concurrency/one-winner concurrency/one-heir closing/other-stores faults/restart faults/crash
		faults/crash-of-others faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost
		faults/keep-reply-lost faults/severed strangers/acquire break/other-token renew/token queue/in-order
		queue/notified-once queue/own-notices queue/no-overtaking queue/exclusion queue/racing-release queue/first
		queue/granted-at-once queue/end-of-a-place queue/expired-places queue/dead-waiters queue/expired-hold
		queue/attempt-without-queue queue/repetition queue/renew queue/renew-after-admission queue/release
		queue/release-with-keep queue/keep queue/break queue/request queue/floor-too-far queue/several queue/waiting
		queue/secret queue/crash queue/restart claims/nothing claims/kept claims/hold claims/place
		faults/queue-reply-lost faults/place-severed
	`},
	{bug: refusalLeaksOwner, fails: `acquire/refusal-record acquire/refusal-secret keep/refusal queue/secret`},
	{bug: refusalSaysNothing, fails: `acquire/refusal-remaining queue/first queue/keep`},
	{bug: refusalNamesOthers, fails: `acquire/refusal-record keep/refusal`},
	{bug: errorsLeakOwner, fails: `contexts/secret faults/secret`},
	{bug: batchUsesFirstTTL, fails: `renew/batch-extremes renew/batch-each-its-ttl renew/batch-duplicates queue/renew`},
	{bug: batchIsCut, fails: `renew/batch-large`},
	{bug: batchOutOfOrder, fails: `renew/batch-in-order`},
	{bug: emptyBatchFails, fails: `renew/batch-empty`},
	{bug: renewRevivesExpired, fails: `renew/after-expiry renew/batch-in-order claims/nothing`},
	{bug: renewTakesFree, fails: `
		renew/free-name renew/after-release renew/batch-in-order break/victim break/one-name-only
		concurrency/renew-and-release break/token queue/renew queue/release claims/nothing claims/broken notices/lost
	`},
	{bug: keepLetsOwnerRenew, fails: `keep/no-renewal`},
	{bug: renewForgetsOwner, fails: `
		renew/late-with-successor renew/not-the-owner renew/batch-in-order detached/expires break/victim-with-successor
		queue/in-order queue/end-of-a-place queue/expired-places queue/expired-hold queue/attempt-without-queue
		queue/renew queue/release queue/release-with-keep queue/keep queue/break claims/nothing
	`},
	{bug: renewOnOwnStoreOnly, fails: `
		renew/other-process detached/handed-over detached/outlives-store detached/outlives-process
		detached/outlives-renewer faults/restart
	`},
	{bug: renewDoesNothing, fails: `
		renew/batch-extremes release/after-extension renew/prolongs renew/batch-each-its-ttl renew/batch-duplicates
		detached/handed-over lookup/after-renewal faults/renew-reply-lost renew/token queue/renew-after-admission
	`},
	{bug: renewShortens, fails: `renew/batch-extremes renew/never-shortens renew/batch-duplicates`},
	{bug: renewChangesToken, fails: `renew/keeps-token`},
	{bug: renewDropsMetadata, fails: `metadata/lasts`},
	{bug: underclaimsKeep, claims: without(keep), fails: `keep/unclaimed`},
	{bug: overclaimsKeep, fails: `
		keep/taken keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal keep/repeated keep/repeated-too-late
		keep/not-the-owner keep/not-a-stranger keep/after-expiry keep/refusal keep/record keep/record-ends
		keep/tokens-rise list/kept-names break/kept-name faults/keep-reply-lost queue/release-with-keep queue/keep
		claims/kept notices/keep notices/lost
	`},
	{bug: refusedKeepReleases, claims: without(keep), fails: `keep/unclaimed`},
	{bug: releaseAlwaysTrue, fails: `
		tokens/floor-too-far release/second release/free-name release/not-the-owner release/no-owner
		release/after-expiry release/late-with-successor release/second-with-successor keep/repeated-too-late
		keep/not-the-owner keep/not-a-stranger keep/after-expiry break/victim break/victim-with-successor
		faults/release-reply-lost queue/end-of-a-place queue/expired-places queue/attempt-without-queue queue/renew
		queue/release queue/release-with-keep queue/break claims/nothing claims/broken notices/given-up
	`, may: `contexts/cancel-storm`},
	{bug: keepFreedByAnyone, fails: `keep/repeated keep/not-a-stranger faults/keep-reply-lost`},
	{bug: releaseForgetsOwner, fails: `
		release/not-the-owner release/no-owner release/late-with-successor release/second-with-successor
		keep/repeated-too-late keep/not-the-owner break/victim-with-successor faults/release-reply-lost
		queue/end-of-a-place queue/expired-places queue/attempt-without-queue queue/release queue/release-with-keep
		queue/break claims/nothing notices/given-up
	`, may: `contexts/cancel-storm`},
	{bug: keepNotRepeatable, fails: `keep/repeated faults/keep-reply-lost`},
	{bug: releaseByOwnerEndsAll, fails: `release/one-name-only`},
	{bug: ignoresKeep, fails: `
		keep/taken keep/shorter-than-TTL keep/longer-than-TTL keep/repeated keep/not-a-stranger keep/refusal keep/record
		list/kept-names break/kept-name faults/keep-reply-lost queue/keep claims/kept
	`},
	{bug: releasesLate, fails: `
		tokens/several-ahead tokens/several tokens/several-of-a-repetition release/after-extension tokens/floor-too-far
		acquire/two-processes acquire/refusal-harmless acquire/repetition-after-release renew/after-release
		renew/batch-in-order release/frees release/second release/second-with-successor release/in-order
		expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-release
		tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal detached/handed-over
		detached/outlives-store detached/outlives-process lookup/free-name metadata/of-this-hold break/free-name
		contexts/ended-acquire contexts/ended-release contexts/cancel-storm concurrency/renew-and-release
		concurrency/guarded-resource closing/anew faults/release-reply-lost faults/release-request-lost
		break/other-token break/token-of-free-name renew/token queue/in-order queue/notified-once queue/own-notices
		queue/no-overtaking queue/exclusion queue/racing-release queue/end-of-a-place queue/expired-places
		queue/attempt-without-queue queue/repetition queue/renew queue/renew-after-admission queue/release
		queue/release-with-keep queue/keep queue/break queue/request queue/floor-too-far queue/several queue/waiting
		claims/nothing claims/place notices/other-process notices/none-lost notices/racing-release notices/again
		notices/ends notices/given-up notices/other-names notices/every-listener
		shared/unclaimed faults/queue-reply-lost faults/place-severed
	`, may: `faults/notices-severed`},
	{bug: releaseDoesNothing, fails: `
		tokens/several-ahead tokens/several tokens/several-of-a-repetition release/after-extension tokens/floor-too-far
		acquire/two-processes acquire/refusal-harmless acquire/repetition-after-release renew/after-release
		renew/batch-in-order release/frees release/second release/second-with-successor release/in-order
		expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-release
		tokens/rise-over-reopening tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal
		tokens/rise-over-restart detached/handed-over detached/outlives-store detached/outlives-process lookup/free-name
		metadata/of-this-hold list/gone-names break/free-name contexts/ended-acquire contexts/ended-release
		contexts/cancel-storm concurrency/exclusion concurrency/renew-and-release concurrency/guarded-resource
		closing/anew faults/release-reply-lost faults/release-request-lost break/other-token break/token-of-free-name
		renew/token queue/in-order queue/notified-once queue/own-notices queue/no-overtaking queue/exclusion
		queue/racing-release queue/end-of-a-place queue/expired-places queue/dead-waiters queue/attempt-without-queue
		queue/repetition queue/renew queue/renew-after-admission queue/release queue/release-with-keep queue/keep
		queue/break queue/request queue/floor-too-far queue/several queue/waiting queue/crash queue/restart
		claims/nothing claims/place notices/other-process notices/none-lost notices/racing-release notices/again
		notices/ends notices/given-up notices/other-names notices/every-listener
		shared/unclaimed faults/queue-reply-lost faults/notices-severed faults/place-severed
	`},
	{bug: keepOnlyLengthens, fails: `
		keep/shorter-than-TTL keep/no-renewal keep/repeated-too-late keep/refusal keep/record keep/record-ends
		keep/tokens-rise queue/keep claims/kept
	`},
	{bug: keepOnlyShortens, fails: `keep/longer-than-TTL`},
	{bug: keepIsNotMarked, fails: `keep/taken keep/no-renewal keep/refusal keep/record list/kept-names break/kept-name claims/kept`},
	{bug: keepNamesHolder, fails: `keep/refusal keep/record list/kept-names`},
	{bug: underclaimsDetached, claims: without(detached), fails: `detached/unclaimed`},
	{bug: refusedDetachedTakes, claims: without(detached), fails: `detached/unclaimed`},
	{bug: overclaimsDetached, fails: `
		detached/handed-over detached/outlives-store detached/outlives-process detached/outlives-renewer
		detached/expires
	`},
	{bug: detachedNeverExpires, fails: `detached/expires`},
	{bug: closeEndsDetached, fails: `detached/outlives-store`},
	{bug: crashEndsDetached, claims: crashFrees, fails: `detached/outlives-process`},
	{bug: renewalAttaches, claims: crashFrees, fails: `detached/outlives-renewer`},
	{bug: underclaimsLookup, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupAlwaysFinds, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupNeverFinds, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupShowsExpired, fails: `keep/record-ends lookup/after-expiry`},
	{bug: lookupShowsNobody, fails: `lookup/free-name lookup/after-expiry`},
	{bug: lookupProlongs, fails: `keep/record lookup/held-name lookup/times lookup/after-renewal lookup/harmless queue/request`},
	{bug: lookupLeaksOwner, fails: `
		keep/record lookup/held-name lookup/secret metadata/round-trip metadata/largest metadata/of-this-hold
		metadata/lasts queue/request queue/secret
	`},
	{bug: overclaimsLookup, fails: `
		renew/keeps-token keep/record lookup/held-name lookup/times lookup/after-renewal lookup/secret lookup/harmless
		metadata/round-trip metadata/largest metadata/of-this-hold metadata/lasts names/odd-records strangers/lookup
		queue/request queue/waiting queue/secret
	`},
	{bug: underclaimsList, claims: without(list), fails: `guarantees/no-list`},
	{bug: overclaimsList, fails: `
		list/held-names list/everything list/gone-names list/kept-names list/literal-prefix list/many list/broken-off
		list/calls-meanwhile list/secret names/odd-records closing/later-calls strangers/list queue/waiting queue/secret
	`},
	{bug: listBlocksCalls, fails: `list/calls-meanwhile`},
	{bug: brokenListHangs, fails: `list/broken-off`},
	{bug: listYieldsTwice, fails: `
		list/held-names list/everything list/gone-names list/kept-names list/literal-prefix list/many list/secret
		names/odd-records queue/waiting queue/secret
	`},
	{bug: listShowsExpired, fails: `list/gone-names`},
	{bug: listLeaksOwner, fails: `list/held-names list/kept-names list/secret names/odd-records queue/secret`},
	{bug: listHidesKept, fails: `list/kept-names`},
	{bug: listIsCut, fails: `list/many names/odd-records`},
	{bug: listIgnoresPrefix, fails: `list/held-names list/literal-prefix`},
	{bug: listIgnoresCase, fails: `list/held-names`},
	{bug: listTakesPatterns, fails: `list/literal-prefix`},
	{bug: underclaimsBreak, claims: without(breaking), fails: `guarantees/no-break`},
	{bug: overclaimsBreak, fails: `
		tokens/several-over-break tokens/rise-over-break break/held-name break/free-name break/kept-name break/victim
		break/victim-with-successor break/one-name-only break/token break/other-token break/token-of-free-name
		break/secret closing/later-calls queue/break queue/secret claims/broken notices/break notices/other-process
		notices/lost
	`},
	{bug: breakSparesKept, fails: `break/kept-name`},
	{bug: breakAlwaysTrue, fails: `break/free-name break/token break/token-of-free-name queue/break`},
	{bug: breakLeaksOwner, fails: `break/held-name break/secret break/token queue/break queue/secret`},
	{bug: breakByPrefix, fails: `break/one-name-only`},
	{bug: breakResetsToken, fails: `tokens/several-over-break tokens/rise-over-break`},
	{bug: breakDoesNothing, fails: `
		tokens/several-over-break tokens/rise-over-break break/held-name break/kept-name break/victim
		break/victim-with-successor break/one-name-only break/token queue/break claims/broken notices/lost
	`},
	{bug: breakIgnoresToken, fails: `break/other-token`},
	{bug: breakSparesToken, fails: `break/token queue/break`},
	{bug: breakEndsLower, fails: `break/other-token`},
	{bug: breakTakesLaterTokens, fails: `break/other-token`},
	{bug: breakShowsOther, fails: `break/other-token`},
	{bug: breakOtherIsTrue, fails: `break/other-token`},
	{bug: busyIsNoRetry, fails: `faults/busy`},
	{bug: busyApplies, fails: `faults/busy`},
	{bug: busyForgetsWhen, fails: `faults/busy`},
	{bug: busyIsHeld, fails: `faults/busy`},
	{bug: remembersHeld, fails: `faults/silence-is-not-held`},
	{bug: releasesByFirstTTL, fails: `detached/handed-over release/after-extension`},
	{bug: occupiedIsGranted, fails: `strangers/acquire strangers/lookup`},
	{bug: occupiedIsShown, fails: `strangers/acquire strangers/lookup strangers/list`},
	{bug: occupiedHasNoBounds, fails: `strangers/acquire strangers/lookup strangers/list`},
	{bug: occupiedEndsLists, fails: `strangers/list`},
	{bug: guaranteesVague, fails: `guarantees/complete`},
	{bug: guaranteesChange, fails: `guarantees/stable`},
	{bug: closeFailsTwice, fails: `closing/twice`},
	{bug: closeBreaksWorld, fails: `tokens/rise-over-reopening detached/outlives-store closing/other-stores closing/anew`},
	{bug: closeEndsAllHolds, fails: `detached/outlives-store closing/other-stores`},
	{bug: queuesWithoutNotify, fails: `
		guarantees/notifier queue/in-order queue/notified-once queue/own-notices queue/no-overtaking queue/exclusion
		queue/racing-release queue/first queue/end-of-a-place queue/expired-places queue/dead-waiters queue/expired-hold
		queue/attempt-without-queue queue/repetition queue/renew queue/renew-after-admission queue/release
		queue/release-with-keep queue/keep queue/break queue/request queue/floor-too-far queue/several queue/waiting
		queue/secret queue/crash queue/restart claims/nothing claims/place notices/release notices/break notices/keep
		notices/other-process notices/first-grant notices/every-waiter notices/none-lost notices/racing-release
		notices/again notices/prolonged notices/ends notices/given-up notices/many notices/other-names
		 notices/every-listener notices/lost closing/notices faults/notices-severed
		faults/place-severed faults/queue-reply-lost
	`},
	{bug: keepAdmits, fails: `queue/keep`},
	{bug: admitsTwo, fails: `queue/in-order queue/notified-once queue/exclusion`},
	{bug: placeForgetsRequest, fails: `queue/request`},
	{bug: admissionProlongs, fails: `queue/end-of-a-place queue/dead-waiters queue/crash queue/restart`},
	{bug: noticeOfMoreTokens, fails: `queue/in-order queue/several`},
	{bug: notifiesTwice, fails: `queue/notified-once`},
	{bug: asksAllPlaces, fails: `queue/notified-once`},
	{bug: attemptQueues, fails: `
		acquire/two-processes acquire/refusal-harmless expiry/store-clock tokens/floor-of-a-refusal detached/handed-over
		detached/outlives-store detached/outlives-process queue/in-order queue/no-overtaking queue/end-of-a-place
		queue/expired-places queue/attempt-without-queue queue/release queue/release-with-keep queue/break queue/waiting
	`, may: `contexts/cancel-storm`},
	{bug: claimForgetsPlaces, fails: `queue/first queue/keep claims/place faults/queue-reply-lost`},
	{bug: placeTakesAnyFloor, fails: `queue/floor-too-far`},
	{bug: placeMadeLate, fails: `queue/racing-release queue/repetition`},
	{bug: repetitionQueuesAgain, fails: `queue/repetition`},
	{bug: placesNeverEnd, fails: `
		queue/first queue/end-of-a-place queue/expired-places queue/dead-waiters queue/renew queue/request queue/crash
		queue/restart
	`},
	{bug: claimDoesNotProlong, fails: `claims/place`},
	{bug: claimMakesPlace, fails: `
		queue/end-of-a-place queue/expired-places queue/attempt-without-queue queue/renew queue/release
		queue/release-with-keep queue/break claims/nothing claims/broken
	`},
	{bug: neverFirst, fails: `queue/first queue/keep`},
	{bug: everyPlaceIsFirst, fails: `queue/first`},
	{bug: servesLatest, fails: `
		queue/in-order queue/notified-once queue/own-notices queue/no-overtaking queue/first queue/expired-places
		queue/expired-hold queue/repetition queue/renew queue/release queue/keep queue/break claims/place
		 faults/place-severed
	`},
	{bug: renewForgetsPlaces, fails: `queue/in-order queue/expired-hold queue/renew queue/keep`},
	{bug: renewTokenMeansPlace, fails: `queue/renew`},
	{bug: releaseForgetsPlaces, fails: `queue/first queue/release queue/release-with-keep queue/waiting faults/queue-reply-lost`},
	{bug: keepOfPlaceSparesIt, fails: `queue/release-with-keep`},
	{bug: endOfOneEndsAll, fails: `notices/given-up`},
	{bug: interestNeedsOldName, fails: `
		notices/release notices/break notices/keep notices/other-process notices/first-grant notices/every-waiter
		notices/none-lost notices/racing-release notices/again notices/prolonged notices/given-up notices/many
		 notices/every-listener faults/notices-severed
	`},
	{bug: interestNeverEnds, fails: `notices/ends`},
	{bug: interestIsNotProlonged, fails: `notices/prolonged`},
	{bug: interestBeginsLate, fails: `
		notices/release notices/break notices/keep notices/other-process notices/first-grant notices/every-waiter
		notices/none-lost notices/racing-release notices/again notices/given-up notices/many
		notices/every-listener
	`, may: `faults/notices-severed`},
	{bug: waitingLeaks, fails: `
		notices/release notices/break notices/keep notices/other-process notices/first-grant notices/every-waiter
		notices/none-lost notices/racing-release notices/again notices/prolonged notices/ends notices/given-up
		notices/many notices/other-names notices/every-listener closing/notices
		faults/notices-severed
	`},
	{bug: asksEverybody, fails: `notices/other-names`},
	{bug: asksOwnStoreOnly, fails: `
		notices/other-process notices/first-grant notices/every-waiter notices/none-lost notices/racing-release
		faults/notices-severed
	`},
	{bug: dropsAsks, fails: `notices/first-grant notices/none-lost notices/racing-release notices/again notices/many`},
	{bug: asksOnce, fails: `notices/again notices/every-listener faults/notices-severed`},
	{bug: asksOneWaiter, fails: `
		notices/other-process notices/first-grant notices/every-waiter notices/none-lost notices/racing-release
		notices/given-up
	`},
	{bug: keepIsSilent, fails: `queue/keep`},
	{bug: notifiesEveryStore, fails: `queue/own-notices`},
	{bug: oneListener, fails: `notices/every-listener`},
	{bug: stopDoesNothing, fails: `notices/every-listener`},
	{bug: severedIsSilent, fails: `faults/notices-severed faults/place-severed`},
	{bug: severedStaysCut, fails: `faults/notices-severed faults/place-severed`},
	{bug: ignoresLimits, fails: `shared/unclaimed`},
	{bug: claimUnclaimed, claims: without(fair), fails: `claims/unclaimed`},
	{bug: newcomersOvertake, fails: `
		queue/no-overtaking queue/dead-waiters queue/expired-hold queue/waiting
		faults/queue-reply-lost
	`},
	{bug: claimTakesFree, fails: `queue/renew queue/release claims/nothing claims/broken`},
	{bug: claimRevivesKept, fails: `claims/kept`},
	{bug: grantLastsQueue, fails: `queue/granted-at-once`},
	{bug: breakEndsPlaces, fails: `queue/break`},
	{bug: releaseDoesNotAsk, fails: `
		notices/release notices/other-process notices/first-grant notices/every-waiter notices/none-lost
		notices/racing-release notices/again notices/prolonged notices/given-up notices/many
		notices/every-listener faults/notices-severed
	`},
	{bug: breakDoesNotAsk, fails: `notices/break notices/other-process`},
	{bug: keepDoesNotAsk, fails: `notices/keep`},
	{bug: renewDoesNotSettle, fails: `queue/expired-hold`},
	{bug: renewIgnoresToken, fails: `renew/token`},
	{bug: admittedIsNotProlonged, fails: `queue/renew-after-admission`},
	{bug: waitingCountsHold, fails: `queue/waiting`},
	{bug: crashedPlacesStay, fails: `queue/crash`},
	{bug: restartedPlacesStay, fails: `queue/restart`},
	{bug: releaseIsReportedLost, fails: `queue/notified-once queue/own-notices notices/lost`},
}
