import { PageHead } from "../parts/panel";

export function NotFoundPage() {
  return (
    <>
      <PageHead title="There is no such page" lead="The address may have been cut off when it was copied." />
      <p>
        <a href="/">Go to the overview</a>
      </p>
    </>
  );
}
